/* Where a rank's calls stand. */
#ifndef TRI_CORE_STANDING_H
#define TRI_CORE_STANDING_H

#include "csrc/core/communicator.h"

/* How far the calls have got; after the communicator's end, how far they had got when the watchdog
 * last looked. The caller holds the watchdog's lock. */
void tri_standing_read(const struct tri_recorder *recorder, struct tri_progress *out);

/* Of one call that the recorder holds. */
enum tri_standing {
    TRI_ENTERED, /* the rank is inside the call */
    TRI_QUEUED,  /* has not ended, and may not have started */
    TRI_STARTED,
    TRI_DONE,
    TRI_UNKNOWN /* queued, and its end goes unnoticed */
};
enum tri_standing tri_standing_of(const struct tri_recorder *recorder,
                                  const struct tri_recorded *call,
                                  const struct tri_progress *progress);

#endif
