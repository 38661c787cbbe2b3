/* Where the ranks of one communicator in this process agree on who goes on, and get one id. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/base/meeting.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "csrc/base/clock.h"
#include "csrc/base/text.h"

enum { LIST_SIZE = 200 };

bool tri_meeting_init(struct tri_meeting *meeting)
{
    pthread_condattr_t clock;
    memset(meeting, 0, sizeof *meeting);
    if (pthread_mutex_init(&meeting->lock, NULL) != 0)
        return false;
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC); /* the clock of tri_now_ns */
    const bool good = pthread_cond_init(&meeting->ended, &clock) == 0;
    (void)pthread_condattr_destroy(&clock);
    if (!good)
        (void)pthread_mutex_destroy(&meeting->lock);
    return good;
}

void tri_meeting_destroy(struct tri_meeting *meeting)
{
    (void)pthread_cond_destroy(&meeting->ended);
    (void)pthread_mutex_destroy(&meeting->lock);
}

static bool is_present(const struct tri_meeting *meeting, int32_t rank)
{
    const struct tri_attendee *other = meeting->present;
    while (other != NULL && other->rank != rank)
        other = other->next;
    return other != NULL;
}

/* "1, 3", of the ranks that `self` expects: all, or (with `meeting`) those that have not come. */
static void list_ranks(char *text, const struct tri_attendee *self,
                       const struct tri_meeting *meeting)
{
    struct tri_text list = {.data = text, .room = LIST_SIZE};
    text[0] = '\0';
    for (int32_t i = 0; i < self->n; i++)
        if (meeting == NULL || !is_present(meeting, self->ranks[i]))
            tri_text_add(&list, "%s%d", list.used == 0 ? "" : ", ", (int)self->ranks[i]);
}

static bool same_ranks(const struct tri_attendee *a, const struct tri_attendee *b)
{
    return a->n == b->n && memcmp(a->ranks, b->ranks, (size_t)a->n * sizeof a->ranks[0]) == 0;
}

/* End the attempt. The status' detail is this thread's. Locked. */
static void end(struct tri_meeting *meeting, trib_status status)
{
    meeting->attempts++;
    meeting->status = status;
    (void)snprintf(meeting->detail, sizeof meeting->detail, "%s", tri_detail());
    meeting->present = NULL;
    meeting->n = 0;
    (void)pthread_cond_broadcast(&meeting->ended);
}

static trib_status differ(const struct tri_attendee *a, const struct tri_attendee *b)
{
    char stay_a[LIST_SIZE], stay_b[LIST_SIZE];
    list_ranks(stay_a, a, NULL);
    list_ranks(stay_b, b, NULL);
    return tri_fail(TRIB_ERR_MISMATCH,
                    "the ranks do not exclude the same: rank %d goes on with %s, rank %d with %s; "
                    "call it again, with the same `excluded` on all",
                    (int)a->rank, stay_a, (int)b->rank, stay_b);
}

/* Nobody has ended the attempt before the deadline of `self`. */
static trib_status give_up(const struct tri_meeting *meeting, const struct tri_attendee *self)
{
    char missing[LIST_SIZE];
    list_ranks(missing, self, meeting);
    return tri_fail(TRIB_ERR_TIMEOUT,
                    "after %u ms these ranks have not called it: %s; call it again, and exclude "
                    "those that are lost",
                    (unsigned)self->timeout_ms, missing);
}

/* All expected ranks have come, and `self` is the last. Locked, but not while `make` runs: meanwhile
 * another rank may come with another set, or a deadline may pass. */
static void complete(struct tri_meeting *meeting, const struct tri_attendee *self, uint64_t attempt)
{
    trib_id id;
    pthread_mutex_unlock(&meeting->lock);
    const trib_status status = self->make(&id, self->context);
    pthread_mutex_lock(&meeting->lock);
    if (meeting->attempts != attempt)
        return;
    if (status == TRIB_OK)
        meeting->id = id;
    end(meeting, status);
    if (status == TRIB_OK)
        list_ranks(meeting->detail, self, NULL);
}

/* Wait until the attempt has ended; the deadline of `self` ends it. Locked. */
static void await(struct tri_meeting *meeting, const struct tri_attendee *self, uint64_t attempt)
{
    const struct timespec at = {(time_t)(self->deadline_ns / 1000000000u),
                                (long)(self->deadline_ns % 1000000000u)};
    while (meeting->attempts == attempt && tri_now_ns() < self->deadline_ns)
        (void)pthread_cond_timedwait(&meeting->ended, &meeting->lock, &at);
    if (meeting->attempts == attempt)
        end(meeting, give_up(meeting, self));
}

/* The result of the newest attempt; `present`: the rank took part in it. Locked. */
static trib_status result(const struct tri_meeting *meeting, const struct tri_attendee *self,
                          bool present, trib_id *out)
{
    *self->attempts = meeting->attempts;
    if (meeting->status != TRIB_OK)
        return tri_fail(meeting->status, "%s", meeting->detail);
    if (!present)
        return tri_fail(TRIB_ERR_MISMATCH,
                        "rank %d comes too late: the others have gone on, with %s", (int)self->rank,
                        meeting->detail);
    *out = meeting->id;
    return TRIB_OK;
}

/* Locked. */
static void take_part(struct tri_meeting *meeting, struct tri_attendee *self, uint64_t attempt)
{
    if (meeting->present != NULL && !same_ranks(meeting->present, self)) {
        end(meeting, differ(meeting->present, self));
        return;
    }
    self->next = meeting->present;
    meeting->present = self;
    if (++meeting->n == self->n)
        complete(meeting, self, attempt);
    else
        await(meeting, self, attempt);
}

trib_status tri_meeting_attend(struct tri_meeting *meeting, struct tri_attendee *self, trib_id *out)
{
    pthread_mutex_lock(&meeting->lock);
    const uint64_t attempt = meeting->attempts;
    const bool in_time = *self->attempts == attempt;
    if (in_time)
        take_part(meeting, self, attempt);
    const trib_status status =
        result(meeting, self, in_time && meeting->attempts == attempt + 1, out);
    pthread_mutex_unlock(&meeting->lock);
    return status;
}
