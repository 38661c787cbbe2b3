/* Symmetric memory, which all ranks allocate and free together. */
#ifndef TRI_CORE_SYMMETRIC_H
#define TRI_CORE_SYMMETRIC_H

#include "csrc/core/communicator.h"
#include "csrc/core/making.h"

/* The public functions of these names; `comm` is not NULL. */
trib_status tri_symmetric_alloc(void **out, struct trib_comm *comm, size_t bytes);
trib_status tri_symmetric_import(void **out, struct trib_comm *comm, const void *data, size_t bytes,
                                 trib_stream stream);
trib_status tri_symmetric_free(struct trib_comm *comm, void *data);

/* What the backend wants to have, while ranks of several processes make their communicator. Fails if that has ended. */
trib_status tri_symmetric_bring(const struct tri_making *making);

/* Such memory for the library itself, which stays until the communicator is destroyed: another rank of this process
 * may read it in a call that this rank never makes, or that an abort ends. */

/* From how many bytes on is it better that kernels read in it what peers have made, than that a collective brings
 * that? SIZE_MAX: never. The same on all ranks. */
size_t tri_symmetric_near_from(const struct trib_comm *comm);
/* Are ranks in other processes, and do kernels serve an allreduce of so many elements better in such memory than elsewhere? The
 * same on all ranks. */
bool tri_symmetric_serves(const struct trib_comm *comm, size_t count, trib_dtype dtype);
/* All ranks make it, or take what all of them have to spare, within a call that they make together and have agreed
 * on, on that call's `stream`. All of them get it, or none. */
trib_status tri_symmetric_make(struct tri_symmetric **out, struct trib_comm *comm, int operation,
                               size_t bytes, trib_stream stream);
/* This rank uses it no more; `in_use`: but for what is queued, so none of its symmetric memory is ever freed. NULL:
 * nothing. */
void tri_symmetric_drop(const struct trib_comm *comm, struct tri_symmetric *memory, bool in_use);

#endif
