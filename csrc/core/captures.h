/* The memory of calls that graphs have captured: each call's is its own, and its graph owns it. */
#ifndef TRI_CORE_CAPTURES_H
#define TRI_CORE_CAPTURES_H

#include "csrc/base/abort.h"
#include "csrc/core/memory.h"

/* Those of one communicator, which they may outlive. */
struct tri_captures;

/* For whom a call on `stream`, which a graph captures, gets memory. */
struct tri_capturing {
    struct tri_captures **captures; /* NULL there before the first one */
    struct tri_owner *owner;
    struct trib_abort *state; /* replays read its abort flag */
    trib_stream stream;
};

/* *out: `bytes` bytes, aligned to 256; *out_counts: a list's counts, 0. Freed once the graph is gone,
 * also if the call fails. May wait. */
trib_status tri_captures_alloc(char **out, struct tri_list_counts **out_counts,
                               const struct tri_capturing *of, size_t bytes);

/* The counts of all of them, those whose graphs are gone included. NULL allowed. */
struct tri_list_counts tri_captures_lists(struct tri_captures *captures);

/* The communicator ends; NULL allowed. */
void tri_captures_release(struct tri_captures *captures);

#endif
