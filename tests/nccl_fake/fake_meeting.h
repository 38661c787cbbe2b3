/* Kernels of the fake that wait for their peers: the parts of one call, of all ranks, and what such kernels do
 * while they wait. What fake_push.c and fake_pull.c share. The lock is held. */
#ifndef TRI_TESTS_NCCL_FAKE_MEETING_H
#define TRI_TESTS_NCCL_FAKE_MEETING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/push.h"

/* One rank's part, as the first member of what is known of it. */
struct fake_part {
    const void *lane; /* an address that the ranks of a call have in common, and no other lane */
    int rank, device;
    struct fake_meeting *meeting; /* NULL: it has not begun */
};

/* The parts that have begun. */
struct fake_meeting {
    struct fake_meeting *next;
    uint64_t turn;
    int came, left;
    bool done;
    unsigned int stuck; /* when it is done: ranks for which something never comes, a bit each */
    const struct fake_part *parts[TRI_PUSH_RANKS];
};

/* The part begins, in the call of its lane that is at `turn`: one of `*all`, or a new one. Two calls of a
 * rank in one lane end the program. */
void fake_meet(struct fake_meeting **all, struct fake_part *part, uint64_t turn);
/* A part that is there yet, or NULL. */
const struct fake_part *fake_meeting_part(const struct fake_meeting *meeting);
/* The part ends; the last one ends the meeting. */
void fake_leave(struct fake_meeting **all, struct fake_part *part);

/* CUDA's kernels look at the flag while they wait, and hand it on in their control. `late`: and have waited
 * for longer than they may. */
bool fake_is_over(uint32_t *abort_flag, bool late, uint32_t *over);

bool fake_overlaps(const void *data, size_t size, const void *begin, size_t bytes);

#endif
