/* Symmetric memory, which all ranks allocate and free together. */
#ifndef TRI_CORE_SYMMETRIC_H
#define TRI_CORE_SYMMETRIC_H

#include "csrc/core/communicator.h"

/* The public functions of these names; `comm` is not NULL. */
trib_status tri_symmetric_alloc(void **out, struct trib_comm *comm, size_t bytes);
trib_status tri_symmetric_import(void **out, struct trib_comm *comm, const void *data, size_t bytes,
                                 trib_stream stream);
trib_status tri_symmetric_free(struct trib_comm *comm, void *data);

#endif
