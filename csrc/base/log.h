/* Messages for the user's log callback. */
#ifndef TRI_BASE_LOG_H
#define TRI_BASE_LOG_H

#include "tributary.h"

/* Log one line, if the callback takes this level. Any thread; never in a hot path. */
void tri_log(int32_t level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* trib_log_set without checks. */
void tri_log_set(trib_log_fn function, void *context, int32_t level);

#endif
