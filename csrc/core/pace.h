/* Which calls of a rank read the clock, and which of them its backend marks.
 *
 * Reading the clock takes longer than the rest of a record, and a mark takes longer still. So each of
 * the first 64 calls after a look of the watchdog reads it. If there are more, and they follow each
 * other closely, only every 16th does. A call is marked if it reads the clock and does not follow
 * the one before closely (on average, if several were skipped), or if the last mark is old. */
#ifndef TRI_CORE_PACE_H
#define TRI_CORE_PACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { TRI_PACE_READS = 64, TRI_PACE_STRIDE = 16 };

/* All zero at first. */
struct tri_pace {
    _Atomic uint32_t looks; /* of the watchdog, which counts them */
    /* Only the rank's thread uses these. */
    uint32_t looks_seen;
    uint32_t reads;   /* of the clock, since then; counted up to 64 */
    uint32_t unread;  /* calls since the last one */
    bool close;       /* up to then, calls followed each other closely */
    bool marks;       /* mark the call that has been entered last */
    uint64_t read_ns; /* the clock when it was read; no earlier than the watchdog's last look */
    uint64_t marked_ns;
};

/* The part of tri_pace_enter that reads the clock. */
void tri_pace_read(struct tri_pace *pace);

static inline bool tri_pace_due(struct tri_pace *pace)
{
    const uint32_t looks = atomic_load_explicit(&pace->looks, memory_order_relaxed);
    if (looks != pace->looks_seen) {
        pace->looks_seen = looks;
        pace->reads = 0;
    }
    if (pace->reads < TRI_PACE_READS) {
        pace->reads++;
        return true;
    }
    return !pace->close || pace->unread + 1 >= TRI_PACE_STRIDE;
}

/* The rank enters a call; sets `read_ns` and `marks`. `timed`: read the clock and mark the call in
 * any case. Returns whether it has read the clock. */
static inline bool tri_pace_enter(struct tri_pace *pace, bool timed)
{
    const bool reads = timed || tri_pace_due(pace);
    pace->unread++;
    pace->marks = timed;
    if (reads)
        tri_pace_read(pace);
    return reads;
}

/* The backend has not marked the call. */
static inline void tri_pace_unmark(struct tri_pace *pace)
{
    pace->marks = false;
    pace->marked_ns = 0;
}

/* The watchdog looks. */
static inline void tri_pace_look(struct tri_pace *pace)
{
    atomic_fetch_add_explicit(&pace->looks, 1, memory_order_relaxed);
}

#endif
