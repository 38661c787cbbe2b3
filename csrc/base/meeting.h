/* Where the ranks of one communicator in this process agree on who goes on, and get one id.
 *
 * Attempts follow each other. One ends for all of its ranks at once, with the same result: when
 * every expected rank has come and the last of them has made the id, when two expect different
 * ranks, or when the deadline of one has passed. A rank that comes to an attempt that has ended gets
 * the newest result, and waits for nobody. */
#ifndef TRI_BASE_MEETING_H
#define TRI_BASE_MEETING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "csrc/base/status.h"

/* A rank's part in one attempt; lives on its stack. */
struct tri_attendee {
    int32_t rank;
    const int32_t *ranks; /* who goes on: ascending, `rank` among them */
    int32_t n;
    uint64_t *attempts; /* that have ended as far as this rank knows; begins at 0 */
    uint32_t timeout_ms;
    uint64_t deadline_ns;
    /* Makes the id; called on the thread of one rank. */
    trib_status (*make)(trib_id *out, void *context);
    void *context;
    struct tri_attendee *next; /* the meeting's */
};

struct tri_meeting {
    /* Guards everything below. Not held while `make` runs, or during a wait. */
    pthread_mutex_t lock;
    pthread_cond_t ended; /* an attempt has */
    uint64_t attempts;    /* that have ended; of the newest: */
    trib_status status;
    trib_id id;
    char detail[TRI_DETAIL_SIZE];
    struct tri_attendee *present; /* the newest first; each waits until the attempt has ended */
    int32_t n;
};

/* False if the system has no lock to give. */
bool tri_meeting_init(struct tri_meeting *meeting);
void tri_meeting_destroy(struct tri_meeting *meeting);

/* Take part in the next attempt. TRIB_OK: all expected ranks have come, and get the same id.
 * TRIB_ERR_MISMATCH, TRIB_ERR_TIMEOUT, or the failure of `make`: the same on all. */
trib_status tri_meeting_attend(struct tri_meeting *meeting, struct tri_attendee *self,
                               trib_id *out);

#endif
