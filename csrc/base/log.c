/* Messages for the user's log callback. */
#include "csrc/base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

/* Guards the variables below. Held during the callback: once trib_log_set has returned, the old
 * callback does not run, and its context may be freed. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static trib_log_fn sink;
static void *sink_context;
static int32_t sink_level;

void tri_log_set(trib_log_fn function, void *context, int32_t level)
{
    pthread_mutex_lock(&lock);
    sink = function;
    sink_context = context;
    sink_level = level;
    pthread_mutex_unlock(&lock);
}

void tri_log(int32_t level, const char *format, ...)
{
    pthread_mutex_lock(&lock);
    if (sink != NULL && level <= sink_level) {
        char line[1024];
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(line, sizeof line, format, arguments);
        va_end(arguments);
        sink(sink_context, level, line);
    }
    pthread_mutex_unlock(&lock);
}
