/* The flight recorder as JSON: what every rank of this process has called lately, and how far each
 * call has got. rust/tributary-blame reads it. */
#ifndef TRI_CORE_DUMP_H
#define TRI_CORE_DUMP_H

#include <stdbool.h>

#include "csrc/base/text.h"
#include "csrc/core/recorder.h"

/* trib_dump_set without checks; TRIB_ERR_INVALID_ARGUMENT if `prefix` is too long. */
trib_status tri_dump_set(const char *prefix);
/* Use TRIBUTARY_DUMP of the environment, unless a prefix was set. */
void tri_dump_begin(void);
/* Does somebody want a dump when a communicator ends? False after the last one that is written
 * unasked. */
bool tri_dump_wanted(void);

/* Append a dump of the recorders, which are those of tri_watchdog_visit. `reason`: "request",
 * "timeout" or "abort". */
void tri_dump_format(struct tri_text *out, const struct tri_recorder *list, const char *reason);

/* Write a dump that nobody asked for, in the background; frees its text. */
void tri_dump_post(struct tri_text *text);

#endif
