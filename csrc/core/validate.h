/* Checks of a call's arguments. A check that fails sets the detail; no check changes anything.
 * ranges.h checks for overlaps. */
#ifndef TRI_CORE_VALIDATE_H
#define TRI_CORE_VALIDATE_H

#include <stddef.h>

#include "csrc/core/communicator.h"
#include "csrc/core/operation.h"

/* An argument as the detail names it: `name`, or `name[index]`. */
struct tri_argument {
    const char *name;
    size_t index;
};
#define TRI_NO_INDEX SIZE_MAX

/* All arguments of one call of an operation up to TRI_ALLREDUCE_WITH. */
trib_status tri_check_call(const struct trib_comm *comm, int operation,
                           const struct tri_call *call);

/* Its parts, for operations with other arguments. */
trib_status tri_check_dtype(const struct trib_comm *comm, int operation, trib_dtype dtype);
trib_status tri_check_op(const struct trib_comm *comm, int operation, trib_op op);
/* `peer` is a rank; the detail calls it what the operation calls it. */
trib_status tri_check_peer(const struct trib_comm *comm, int operation, int32_t peer);
trib_status tri_check_stream(const struct trib_comm *comm, int operation, trib_stream stream);
/* For TRIB_MATCH, whose allgather would wait for ever: nothing runs during a capture. */
trib_status tri_check_not_captured(const struct trib_comm *comm, int operation, trib_stream stream);
/* The same for a stream that is known to be captured. */
trib_status tri_fail_captured(const struct trib_comm *comm, int operation);
/* `blocks` times `count` elements at `data`. */
struct tri_buffer {
    struct tri_argument argument;
    const void *data;
    size_t blocks, count;
    trib_dtype dtype;
};
/* Not NULL, aligned, and no larger than memory. *bytes: its size. */
trib_status tri_check_extent(const struct trib_comm *comm, int operation,
                             const struct tri_buffer *buffer, size_t *bytes);
/* Asks the backend whether the device may use the memory; bytes > 0. *reach: this many bytes from
 * `data` on are valid. */
trib_status tri_ask_memory(const struct trib_comm *comm, int operation,
                           struct tri_argument argument, const void *data, size_t bytes,
                           size_t *reach);
/* tri_check_extent; then, without TRIB_UNCHECKED, asks the backend whether the device may use the
 * memory. */
trib_status tri_check_buffer(const struct trib_comm *comm, int operation,
                             const struct tri_buffer *buffer, size_t *bytes);
/* Asks the backend the same for a block `offset` bytes from `data` on; bytes > 0. It may lie in
 * another allocation than `data`. But if `data` lies in an allocation, `known` bytes before its end,
 * the block must lie in one too. */
trib_status tri_check_block(const struct trib_comm *comm, int operation,
                            struct tri_argument argument, const void *data, size_t known,
                            size_t offset, size_t bytes);
/* Bytes from `data` to the end of its allocation; 0 if the backend knows of none. */
size_t tri_known_bytes(const struct trib_comm *comm, const void *data);
/* Only TRIB_SUM takes a factor. */
trib_status tri_check_factor_op(const struct trib_comm *comm, int operation, trib_op op);
/* One f32, which the device reads or writes; NULL: there is none. */
trib_status tri_check_scalar(const struct trib_comm *comm, int operation, const char *name,
                             const float *scalar);

#endif
