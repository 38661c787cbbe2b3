/* One of two ranks on nccl, in a process of its own, with a GPU of its own if there are two. */
#ifndef TRI_TESTS_NCCL_APART_H
#define TRI_TESTS_NCCL_APART_H

#include "tests/children.h"
#include "tests/nccl/share.h"
#include "tests/team.h"

enum { APART_ELEMENTS = 16 << 20 }; /* of f32; 64 MiB: an allreduce takes about a millisecond */

/* What the two processes share; zeroed, but for the first. */
struct apart {
    int gpus; /* that there are, at least 1 */
    trib_id id;
    _Atomic int made;
};

struct apart_rank {
    int rank;
    trib_device *device;
    trib_stream stream;
    trib_comm *comm;
    float *data; /* APART_ELEMENTS, zero */
};

/* The paths that NCCL has inside a host. */
struct apart_path {
    const char *name;
    const char *variables[3][2]; /* of its environment */
    /* NCCL sees a process end, but not which; and those that share a GPU have it, too. */
    bool sockets;
};
enum { APART_PATHS = 3 };
extern const struct apart_path apart_paths[APART_PATHS];
/* Before the process uses NCCL. */
void apart_take(const struct apart_path *path);

bool apart_open(struct apart_rank *rank, struct apart *apart, int index,
                const trib_options *options);
void apart_close(struct apart_rank *rank);

/* Shrink to this rank alone, which then works. */
void apart_go_on(struct apart_rank *rank);

/* Queue an allreduce of `count` elements, in place. */
trib_status apart_add(const struct apart_rank *rank, size_t count);
/* Write `value` to the first element; all elements' allreduce; the first element afterwards. */
float apart_sum(const struct apart_rank *rank, float value);

#endif
