/* Statuses with words: the calling thread's last failure. */
#ifndef TRI_BASE_STATUS_H
#define TRI_BASE_STATUS_H

#include <stddef.h>

#include "tributary.h"

/* Room for one detail, terminator included; longer ones are cut. */
#define TRI_DETAIL_SIZE 640

/* Set this thread's detail and return `status`. The text names argument, operation, rank and device,
 * says what was expected and found, and what to do. */
trib_status tri_fail(trib_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* This thread's detail; the same as trib_last_detail. */
const char *tri_detail(void);

#endif
