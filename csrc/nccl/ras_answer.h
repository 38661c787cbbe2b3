/* What NCCL's RAS service says, as bytes that have come. They may be another program's. Pure functions
 * but for the log; tests/fuzz/ras_answer.c fuzzes them. */
#ifndef TRI_NCCL_RAS_ANSWER_H
#define TRI_NCCL_RAS_ANSWER_H

#include <stddef.h>

enum tri_nccl_ras_reply {
    TRI_NCCL_RAS_SHORT, /* no whole line has come */
    TRI_NCCL_RAS_RIGHT,
    TRI_NCCL_RAS_WRONG
};

/* Does the first line of `*used` bytes begin with `expected`? If it does, remove it. `expected` has a
 * line end at its end, if at all. */
enum tri_nccl_ras_reply tri_nccl_ras_reply(char *bytes, size_t *used, const char *expected);

/* Log every line that is not empty, a long one as several, with a ? for each unprintable byte.
 * Changes `bytes`. */
void tri_nccl_ras_log(char *bytes, size_t used);

#endif
