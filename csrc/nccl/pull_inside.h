/* What the files of pull share: its memory, and a launch in it. */
#ifndef TRI_NCCL_PULL_INSIDE_H
#define TRI_NCCL_PULL_INSIDE_H

#include "csrc/nccl/push_inside.h"
#include "kernels/pull.h"

/* What is tried between processes: behind the control of a lane. */
struct tri_nccl_pull_tried {
    float sent[TRI_NCCL_TRIED], received[TRI_NCCL_TRIED];
};

/* Bytes from one lane's control to the other's. */
enum { TRI_NCCL_PULL_CONTROL = 128 * 1024 };
_Static_assert(sizeof(struct tri_pull_control) + sizeof(struct tri_nccl_pull_tried) <=
                   TRI_NCCL_PULL_CONTROL,
               "a control and what is tried have their place");

struct tri_nccl_pull {
    struct tri_nccl_peer_memory
        memory[TRI_PULL_RANKS];      /* the controls of the lanes, then scratch */
    int32_t devices[TRI_PULL_RANKS]; /* of this process, all of them or one */
    int32_t here;                    /* as many */
    int32_t size;
    int32_t blocks; /* of a call */
    bool claimed;
};

/* The buffer of a call that peers access. */
struct tri_nccl_pull_reached {
    const char *unmapped; /* "send" or "recv", if not all ranks map it; else NULL */
    /* Symmetric memory of this rank; NULL: another kind, which has one address on all devices. */
    const struct tri_symmetric *memory;
};

/* Queue the call of `rank`, in the memory of that lane. Its device is current. The only failure is a launch that
 * was refused. */
trib_status tri_nccl_pull_launch(const struct tri_nccl_pull *pull, int32_t rank,
                                 enum tri_nccl_lane lane, const struct tri_call *call,
                                 const struct tri_nccl_pull_reached *reached, uint32_t *abort_flag,
                                 uint64_t patience_ns);

#endif
