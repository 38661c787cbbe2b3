/* What NCCL's RAS service says, as bytes that have come. */
#include "csrc/nccl/ras_answer.h"

#include <string.h>

#include "csrc/base/log.h"

enum { PIECE = 900 }; /* a longer line becomes several in the log */

enum tri_nccl_ras_reply tri_nccl_ras_reply(char *bytes, size_t *used, const char *expected)
{
    const char *end = *used == 0 ? NULL : memchr(bytes, '\n', *used);
    if (end == NULL)
        return TRI_NCCL_RAS_SHORT;
    const size_t length = (size_t)(end - bytes) + 1, beginning = strlen(expected);
    if (length < beginning || memcmp(bytes, expected, beginning) != 0)
        return TRI_NCCL_RAS_WRONG;
    *used -= length;
    memmove(bytes, bytes + length, *used);
    return TRI_NCCL_RAS_RIGHT;
}

static void log_line(char *line, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (line[i] < ' ' || line[i] > '~')
            line[i] = line[i] == '\t' ? ' ' : '?';
    for (size_t at = 0; at < length; at += PIECE)
        tri_log(TRIB_LOG_WARN, "NCCL RAS: %.*s", (int)(length - at < PIECE ? length - at : PIECE),
                line + at);
}

void tri_nccl_ras_log(char *bytes, size_t used)
{
    const char *const end = bytes + used;
    for (char *line = bytes; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        const size_t length = (size_t)((stop == NULL ? end : stop) - line);
        log_line(line, length);
        line += length + (stop != NULL);
    }
}
