/* Statuses and details: the calling thread's last failure. */
#ifndef TRI_BASE_STATUS_H
#define TRI_BASE_STATUS_H

#include <stddef.h>

#include "tributary.h"

/* Bytes of a detail, terminator included; longer ones are cut. */
#define TRI_DETAIL_SIZE 640

/* Set this thread's detail and return `status`. (Cold: so what leads here is compiled apart from what
 * every call runs.) The text names argument, operation, rank and
 * device, what was expected and found, and what to do. */
trib_status tri_fail(trib_status status, const char *format, ...)
    __attribute__((cold, format(printf, 2, 3)));
#ifdef __clang_analyzer__ /* which does not see that it returns `status` */
#  define tri_fail(status, ...) (tri_fail(status, __VA_ARGS__), (status))
#endif

/* Evaluate `call` once and return its status from the enclosing function unless it is TRIB_OK. Use
 * it only where the function has nothing to release, unlock or report before it returns; otherwise
 * test the status and clean up. */
#define TRI_TRY(call)                                                                              \
    do {                                                                                           \
        const trib_status tri_try_status = (call);                                                 \
        if (tri_try_status != TRIB_OK)                                                             \
            return tri_try_status;                                                                 \
    } while (0)

/* For a detail: the meaning of an errno, or of the error that a pthread function returned.
 * "Resource temporarily unavailable (errno 11)". Any thread. */
struct tri_error_text {
    char text[112];
};
struct tri_error_text tri_error_text(int error);

/* This thread's detail; the same as trib_last_detail. */
const char *tri_detail(void);

/* A copy of it, for who makes other calls before tri_fail sets it again. */
struct tri_detail_copy {
    char text[TRI_DETAIL_SIZE];
};
struct tri_detail_copy tri_detail_copy(void);

#endif
