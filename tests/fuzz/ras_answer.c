/* Fuzz target: bytes that come from the port of NCCL's RAS service, through both replies of the opening
 * to the log. A reply is the first line, whole, or none; the log has every byte but the line ends, in
 * order, printable, in lines that it does not cut. */
#include <string.h>

#include "csrc/base/log.h"
#include "csrc/nccl/ras_answer.h"
#include "tests/fuzz/fuzz.h"

/* What the log has yet to say. */
struct rest {
    const uint8_t *at, *end;
};

static void skip_line_ends(struct rest *rest)
{
    while (rest->at < rest->end && *rest->at == '\n')
        rest->at++;
}

static char printable(uint8_t byte)
{
    return byte == '\t' ? ' ' : byte < 0x20 || byte > 0x7e ? '?' : (char)byte;
}

static void on_line(void *context, int32_t level, const char *line)
{
    static const char begin[] = "NCCL RAS: ";
    struct rest *rest = context;
    const size_t n = strlen(line);
    FUZZ_CHECK(level == TRIB_LOG_WARN && strncmp(line, begin, sizeof begin - 1) == 0);
    FUZZ_CHECK(n >= sizeof begin && n <= sizeof begin - 1 + 900);
    skip_line_ends(rest);
    for (const char *c = line + sizeof begin - 1; *c != '\0'; c++) {
        FUZZ_CHECK(rest->at < rest->end && *rest->at != '\n');
        FUZZ_CHECK(*c == printable(*rest->at++));
    }
    /* The line ends where this one ends, or goes on in the next. */
    FUZZ_CHECK(n == sizeof begin - 1 + 900 || rest->at == rest->end || *rest->at == '\n');
}

/* Not a byte more, so that the sanitizer sees each one beyond. */
static char *copy_of(const uint8_t *data, size_t bytes)
{
    char *copy = malloc(bytes == 0 ? 1 : bytes);
    if (copy == NULL)
        FUZZ_FAIL("no memory for %zu bytes", bytes);
    if (bytes != 0)
        memcpy(copy, data, bytes);
    return copy;
}

/* Returns the length of the reply; 0 if there is none. */
static size_t check_reply(const uint8_t *data, size_t bytes, const char *expected)
{
    char *copy = copy_of(data, bytes);
    const size_t n = strlen(expected);
    const uint8_t *end = bytes == 0 ? NULL : memchr(data, '\n', bytes);
    const size_t line = end == NULL ? 0 : (size_t)(end - data) + 1;
    const bool right = line >= n && memcmp(data, expected, n) == 0;
    const size_t taken = right ? line : 0;
    size_t used = bytes;
    const enum tri_nccl_ras_reply reply = tri_nccl_ras_reply(copy, &used, expected);
    if (end == NULL)
        FUZZ_CHECK(reply == TRI_NCCL_RAS_SHORT);
    else
        FUZZ_CHECK(reply == (right ? TRI_NCCL_RAS_RIGHT : TRI_NCCL_RAS_WRONG));
    FUZZ_CHECK(used == bytes - taken);
    FUZZ_CHECK(used == 0 || memcmp(copy, data + taken, used) == 0);
    free(copy);
    return taken;
}

static void check_log(const uint8_t *data, size_t bytes)
{
    char *copy = copy_of(data, bytes);
    struct rest rest = {data, data + bytes};
    tri_log_set(on_line, &rest, TRIB_LOG_DEBUG);
    tri_nccl_ras_log(copy, bytes);
    tri_log_set(NULL, NULL, 0);
    skip_line_ends(&rest);
    FUZZ_CHECK(rest.at == rest.end);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const size_t first = check_reply(data, bytes, "SERVER PROTOCOL ");
    if (first == 0)
        return 0;
    const size_t second = check_reply(data + first, bytes - first, "OK\n");
    if (second > 0)
        check_log(data + first + second, bytes - first - second);
    return 0;
}
