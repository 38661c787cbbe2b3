/* Kernels of the fake that wait for their peers. */
#include "tests/nccl_fake/fake_meeting.h"

#include <stdlib.h>

#include "tests/nccl_fake/fake.h"

const struct fake_part *fake_meeting_part(const struct fake_meeting *meeting)
{
    const struct fake_part *found = NULL;
    for (int rank = 0; rank < TRI_PUSH_RANKS && found == NULL; rank++)
        found = meeting->parts[rank];
    return found;
}

static struct fake_meeting *find(struct fake_meeting *all, const struct fake_part *part,
                                 uint64_t turn)
{
    struct fake_meeting *found = NULL;
    for (struct fake_meeting *meeting = all; meeting != NULL; meeting = meeting->next) {
        const struct fake_part *some = fake_meeting_part(meeting);
        if (some == NULL || some->lane != part->lane)
            continue;
        if (meeting->parts[part->rank] != NULL)
            fake_die("two calls of a rank overlap in one lane");
        if (!meeting->done && meeting->turn == turn)
            found = meeting;
    }
    return found;
}

void fake_meet(struct fake_meeting **all, struct fake_part *part, uint64_t turn)
{
    struct fake_meeting *meeting = find(*all, part, turn);
    if (meeting == NULL) {
        meeting = calloc(1, sizeof *meeting);
        if (meeting == NULL)
            fake_die("no memory for a call");
        *meeting = (struct fake_meeting){.next = *all, .turn = turn};
        *all = meeting;
    }
    meeting->parts[part->rank] = part;
    meeting->came++;
    part->meeting = meeting;
}

void fake_leave(struct fake_meeting **all, struct fake_part *part)
{
    struct fake_meeting *meeting = part->meeting;
    meeting->parts[part->rank] = NULL;
    if (++meeting->left < meeting->came)
        return;
    while (*all != meeting)
        all = &(*all)->next;
    *all = meeting->next;
    free(meeting);
}

bool fake_is_over(uint32_t *abort_flag, bool late, uint32_t *over)
{
    uint32_t found = __atomic_load_n(abort_flag, __ATOMIC_ACQUIRE);
    if (found == 0 && late) {
        found = TRI_PUSH_LATE;
        __atomic_store_n(abort_flag, found, __ATOMIC_RELEASE);
    }
    if (found != 0)
        *over = found;
    return found != 0;
}

bool fake_overlaps(const void *data, size_t size, const void *begin, size_t bytes)
{
    const char *const at = data, *const from = begin;
    return at < from + bytes && from < at + size;
}
