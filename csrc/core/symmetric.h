/* Symmetric memory, which all ranks allocate and free together. */
#ifndef TRI_CORE_SYMMETRIC_H
#define TRI_CORE_SYMMETRIC_H

#include "csrc/core/communicator.h"

/* The public functions of these names; `comm` is not NULL. */
trib_status tri_symmetric_alloc(void **out, struct trib_comm *comm, size_t bytes);
trib_status tri_symmetric_import(void **out, struct trib_comm *comm, const void *data, size_t bytes,
                                 trib_stream stream);
trib_status tri_symmetric_free(struct trib_comm *comm, void *data);

/* Such memory for the library itself, which stays until the communicator is destroyed: another rank of this process
 * may read it in a call that this rank never makes, or that an abort ends. */

/* From how many bytes on is it better that kernels read in it what peers have made, than that a collective brings
 * that? SIZE_MAX: never. The same on all ranks. */
size_t tri_symmetric_near_from(const struct trib_comm *comm);
/* Are ranks in other processes, so that kernels serve an allreduce of so many elements in such memory alone? The same on
 * all ranks. */
bool tri_symmetric_serves(const struct trib_comm *comm, size_t count, trib_dtype dtype);
/* All ranks make it, or take what all of them have to spare, within a call that they make together and have agreed
 * on, on that call's `stream`. All of them get it, or none. `served`: collectives are going to work on it, so the backend
 * first gets what it wants for that. */
trib_status tri_symmetric_make(struct tri_symmetric **out, struct trib_comm *comm, int operation,
                               size_t bytes, bool served, trib_stream stream);
/* This rank uses it no more; `in_use`: but for what is queued, so none of its symmetric memory is ever freed. NULL:
 * nothing. */
void tri_symmetric_drop(const struct trib_comm *comm, struct tri_symmetric *memory, bool in_use);

#endif
