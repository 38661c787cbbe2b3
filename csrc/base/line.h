/* Cache lines: what two threads write often lies on lines of its own, or each waits for the other's
 * line. */
#ifndef TRI_BASE_LINE_H
#define TRI_BASE_LINE_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Bytes. x86 fetches lines of 64 bytes in pairs, and lines of some ARM CPUs are as large. */
enum { TRI_LINE = 128 };

/* Zeroed memory that shares no line with other memory, for free(); NULL if memory is short. */
static inline void *tri_line_calloc(size_t bytes)
{
    const size_t whole = (bytes + TRI_LINE - 1) / TRI_LINE * TRI_LINE;
    void *data = aligned_alloc(TRI_LINE, whole);
    if (data != NULL)
        memset(data, 0, whole);
    return data;
}

#endif
