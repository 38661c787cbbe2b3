/* Statuses and details: the calling thread's last failure. */
#undef _GNU_SOURCE /* with it, glibc has a strerror_r of its own */
#define _POSIX_C_SOURCE 200809L
#include "csrc/base/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char detail[TRI_DETAIL_SIZE];

#undef tri_fail /* the analyzer's */
trib_status tri_fail(trib_status status, const char *format, ...)
{
    char text[TRI_DETAIL_SIZE]; /* the arguments may point into the old detail */
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)snprintf(detail, sizeof detail, "%s", text);
    return status;
}

const char *tri_detail(void)
{
    return detail;
}

struct tri_detail_copy tri_detail_copy(void)
{
    struct tri_detail_copy out;
    (void)snprintf(out.text, sizeof out.text, "%s", detail);
    return out;
}

struct tri_error_text tri_error_text(int error)
{
    struct tri_error_text out;
    char meaning[80];
    const bool known = strerror_r(error, meaning, sizeof meaning) == 0;
    (void)snprintf(out.text, sizeof out.text, "%s (errno %d)", known ? meaning : "unknown error",
                   error);
    return out;
}

const char *trib_status_name(trib_status status)
{
    switch (status) {
#define TRI_NAME(name, number, sentence)                                                           \
    case number:                                                                                   \
        return "TRIB_" #name;
        TRIB_STATUS_MAP(TRI_NAME)
#undef TRI_NAME
    default:
        return "TRIB_ERR_?";
    }
}

const char *trib_status_message(trib_status status)
{
    switch (status) {
#define TRI_SENTENCE(name, number, sentence)                                                       \
    case number:                                                                                   \
        return sentence;
        TRIB_STATUS_MAP(TRI_SENTENCE)
#undef TRI_SENTENCE
    default:
        return "a status that this version of Tributary does not know";
    }
}
