/* The newest calls of one rank: what it issued, when, and of which kind. The watchdog, reports and
 * dumps read it while the rank goes on.
 *
 * One thread writes (the rank's), any thread reads. Writing takes no lock and never waits; a reader
 * skips a record that is being replaced. */
#ifndef TRI_CORE_RECORDER_H
#define TRI_CORE_RECORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "csrc/backend.h"
#include "csrc/core/pace.h"

enum { TRI_RECORDS = 256 };

/* One call, in the terms of the public function. */
struct tri_recorded {
    uint64_t number;     /* of the communicator's issued calls, from 1 */
    uint64_t collective; /* how many of them, this one included, all ranks make: equal on all ranks
                          * that make the same calls */
    uint64_t count;      /* elements; tensors of a list; calls of a batch */
    /* When the rank entered the call, clock of tri_now_ns; unless `exact`, when it entered one before,
     * no earlier than the watchdog's last look. */
    uint64_t entered_ns;
    uint64_t stream;
    const char *algorithm; /* of a sparse call, valid for ever; else NULL */
    uint32_t timeout_ms;   /* TRIB_NO_TIMEOUT: none */
    int operation;         /* enum tri_kind or enum tri_composed */
    trib_dtype dtype;      /* 0: the operation has none */
    trib_op op;            /* the same */
    int32_t peer;          /* root or peer; -1: none */
    bool all_ranks;        /* make this call; false for sends, receives and local calls */
    bool exact;            /* entered_ns is of this call */
};

/* Nanoseconds since it was entered; 0 if that is after `now_ns`. */
static inline uint64_t tri_recorded_age(const struct tri_recorded *call, uint64_t now_ns)
{
    return now_ns > call->entered_ns ? now_ns - call->entered_ns : 0;
}

enum { TRI_RECORD_WORDS = 7, TRI_RECORD_LINE = 64 };

/* A record as the ring holds it, in one cache line. `version` is 0 while the words change;
 * otherwise the call's number, and in the low 16 bits a count that differs when a number is
 * recorded again. */
struct tri_record_slot {
    _Alignas(TRI_RECORD_LINE) _Atomic uint64_t version;
    _Atomic uint64_t words[TRI_RECORD_WORDS];
};

struct trib_comm;

struct tri_recorder {
    _Atomic uint64_t entered; /* number of the newest call that the rank has entered */
    _Atomic uint64_t issued;  /* of the newest one that the backend has taken */
    /* Only the writer uses these. */
    uint64_t collectives; /* issued so far */
    uint16_t versions;    /* count of versions, modulo 2^16 */
    bool all_ranks;       /* the entered call */
    uint64_t marked;      /* the newest one that the backend has marked */
    struct tri_pace pace;
    /* Guarded by the lock of watchdog.c. */
    struct tri_recorder *next; /* of all that are watched */
    struct trib_comm *comm;    /* whose calls these are */
    struct tri_progress seen;  /* when the watchdog last looked, or last before the end */
    uint64_t changed_ns;       /* when it last saw `started` or `ended` change */
    uint64_t pending;          /* the number of the call that it found pending, */
    uint64_t pending_ns;       /* since then */
    bool reported;             /* that the communicator has ended */

    struct tri_record_slot slots[TRI_RECORDS];
};

/* NULL if memory is short. */
struct tri_recorder *tri_recorder_create(struct trib_comm *comm);

/* The rank enters a call on `stream`. This gives it `number`, `collective`, `entered_ns`, `exact`,
 * `stream` and `timeout_ms`; the caller fills in the rest. `timed`: it is exact, and marked.
 * tri_recorder_leave follows; `issued`: the backend has taken the call. Only the rank's own
 * thread. */
void tri_recorder_enter(struct tri_recorder *recorder, const struct tri_recorded *record,
                        trib_stream stream, uint32_t timeout_ms, bool timed);
void tri_recorder_leave(struct tri_recorder *recorder, bool issued);

/* Shall the backend mark the call that the rank has entered? And: it does not. For its own thread,
 * as the next. */
static inline bool tri_recorder_marks(const struct tri_recorder *recorder)
{
    return recorder->pace.marks;
}

/* The backend has marked call `number`. */
static inline void tri_recorder_marked(struct tri_recorder *recorder, uint64_t number)
{
    recorder->marked = number;
}

static inline void tri_recorder_unmark(struct tri_recorder *recorder)
{
    tri_pace_unmark(&recorder->pace);
}

/* The number of the newest call that the rank has entered. */
static inline uint64_t tri_recorder_entered(const struct tri_recorder *recorder)
{
    return atomic_load_explicit(&recorder->entered, memory_order_relaxed);
}

/* Copy call `number`; false if the ring no longer, or not yet, holds it. Any thread. */
bool tri_recorder_read(const struct tri_recorder *recorder, uint64_t number,
                       struct tri_recorded *out);

/* Call `number`, or the oldest after it that the ring still holds; false: the rank has entered
 * none of these. */
bool tri_recorder_from(const struct tri_recorder *recorder, uint64_t number,
                       struct tri_recorded *out);

/* The newest call on `stream` that the backend has not marked, nor one after it; 0: none that the
 * ring holds. For the rank's own thread. */
uint64_t tri_recorder_unmarked(const struct tri_recorder *recorder, uint64_t stream);

/* The newest call that the rank has entered; false: none. */
bool tri_recorder_newest(const struct tri_recorder *recorder, struct tri_recorded *out);

/* The rank's call with that collective number; false if the ring does not hold it. */
bool tri_recorder_find(const struct tri_recorder *recorder, uint64_t collective,
                       struct tri_recorded *out);

#endif
