/* The sparse states of a reducer's buckets. */
#ifndef TRI_REDUCER_STATES_H
#define TRI_REDUCER_STATES_H

#include "csrc/reducer/reducer.h"
#include "csrc/sparse/kept.h"

/* A state in `out` for each bucket of `layout`, or after a failure none. Blocking call of all ranks,
 * which agree, unless the communicator has ended. */
trib_status tri_reducer_states_create(struct trib_sparse **out, const struct trib_reducer *reducer,
                                      const struct tri_gradient_layout *layout);
/* What commits take back is that of reducer->states from now on. Blocks. What fails must end the
 * communicator. */
trib_status tri_reducer_states_install(const struct trib_reducer *reducer);
/* None of them is used any more, or never will be: they are freed when nothing is queued. Keeps the
 * thread's detail. */
void tri_reducer_states_discard(struct trib_sparse **states, size_t n);

/* Queue the call of bucket `b`, which is filled. */
trib_status tri_reducer_states_run(const struct trib_reducer *reducer, size_t b,
                                   trib_stream stream);

/* TRIB_OK if a graph can capture their calls. */
trib_status tri_reducer_states_check_captured(const struct trib_reducer *reducer, int operation);

/* All of the step is queued, and ends on `stream`: until then nobody changes or frees what its end may take back. Marks
 * each state whatever becomes of the others, and returns the first failure. `deadline_ns`: as that of
 * tri_workspace_mark_by. */
trib_status tri_reducer_states_mark(const struct trib_reducer *reducer, trib_stream stream,
                                    uint64_t *deadline_ns);
/* All steps have run: no state's memory is lost. */
void tri_reducer_states_passed(const struct trib_reducer *reducer);

/* What each of `n` states keeps: an array for the caller to free, also after a failure. Blocks. */
trib_status tri_reducer_states_find(struct tri_kept **out, const struct trib_reducer *reducer,
                                    struct trib_sparse *const *states, size_t n);
/* Bytes of an element of it, of a gradient of this type. */
size_t tri_reducer_kept_element(trib_dtype dtype);

/* Copy what the reducer's states keep of each gradient to where `to`, of that layout, keep it.
 * Blocks. */
trib_status tri_reducer_states_move(const struct trib_reducer *reducer, struct trib_sparse **to,
                                    const struct tri_gradient_layout *to_layout);

#endif
