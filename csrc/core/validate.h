/* Every check of the arguments of a call. A check that fails sets the detail; none changes
 * anything. Ranges that must not meet are in ranges.h. */
#ifndef TRI_CORE_VALIDATE_H
#define TRI_CORE_VALIDATE_H

#include <stddef.h>

#include "csrc/core/communicator.h"
#include "csrc/core/operation.h"

/* An argument as the text shall name it: `name`, or `name[index]`. */
struct tri_argument {
    const char *name;
    size_t index;
};
#define TRI_NO_INDEX SIZE_MAX

/* All arguments of one call of an operation up to TRI_ALLREDUCE_WITH. */
trib_status tri_check_call(const struct trib_comm *comm, int operation,
                           const struct tri_call *call);

/* The parts, for operations with arguments of their own. */
trib_status tri_check_dtype(const struct trib_comm *comm, int operation, trib_dtype dtype);
trib_status tri_check_op(const struct trib_comm *comm, int operation, trib_op op);
/* `peer` is a rank; it is called what the operation calls it. */
trib_status tri_check_peer(const struct trib_comm *comm, int operation, int32_t peer);
trib_status tri_check_stream(const struct trib_comm *comm, int operation, trib_stream stream);
/* For what uses the workspace: inside a graph, what comes before and after its uses is not what it
 * is for eager ones. So for TRIB_MATCH, whose exchange would wait for ever: nothing runs in a
 * capture. */
trib_status tri_check_not_captured(const struct trib_comm *comm, int operation, trib_stream stream);
/* *bytes of copies * count elements; not NULL, aligned. */
trib_status tri_check_buffer(const struct trib_comm *comm, int operation,
                             struct tri_argument argument, const void *data, size_t count,
                             size_t copies, trib_dtype dtype, size_t *bytes);
/* The backend's word on memory; does nothing with TRIB_UNCHECKED. bytes > 0. */
trib_status tri_check_memory(const struct trib_comm *comm, int operation,
                             struct tri_argument argument, const void *data, size_t bytes);
/* The same of a block, `offset` bytes from `data` on. It may lie in another allocation than `data`,
 * but if `data` lies in one, `known` bytes before its end, the block may not lie in none. */
trib_status tri_check_block(const struct trib_comm *comm, int operation,
                            struct tri_argument argument, const void *data, size_t known,
                            size_t offset, size_t bytes);
/* Bytes from `data` to the end of its allocation; 0 if the backend does not know of any. */
size_t tri_known_bytes(const struct trib_comm *comm, const void *data);
/* Only TRIB_SUM takes a factor. */
trib_status tri_check_factor_op(const struct trib_comm *comm, int operation, trib_op op);
/* The device reads the factor at `word`; NULL: the factor is not on the device. */
trib_status tri_check_factor_word(const struct trib_comm *comm, int operation, const float *word);

#endif
