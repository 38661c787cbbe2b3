/* Watches every recorded communicator of the process.
 *
 * A caller stores `entered`, then registers in the in-flight count (a full barrier), then loads
 * `asleep`; the watchdog stores `asleep`, then loads every `entered`. Both are sequentially
 * consistent: of a call and a watchdog that falls asleep, one sees the other. */
#include "csrc/core/watchdog.h"

#include <stdlib.h>

#include "csrc/base/clock.h"
#include "csrc/base/file.h"
#include "csrc/base/lock.h"
#include "csrc/base/log.h"
#include "csrc/base/watch.h"
#include "csrc/core/dump.h"
#include "csrc/core/remote_ask.h"
#include "csrc/core/report.h"

enum {
    MS = 1000000,
    PERIOD_MS = 20,     /* between two looks, while a call is known to run */
    SLOW_MS = 50,       /* while the end of the newest calls is unknown; */
    UNKNOWN_MS = 60000, /* once it has been for this long, */
    RARE_MS = 1000,     /* only for errors of the backend's library */
    WONDER_MS = 1000,   /* until other processes are asked about a call; then at twice its age */
    IDLE_LOOKS = 50     /* without anything to watch often, in a row, before it sleeps */
};

static uint64_t look(void *nothing);

/* Guards the list, what its recorders say is guarded here, and `idle_looks`. Held during a look, so
 * that no communicator goes meanwhile. Lock order: that of base/watch.c, then this, then an abort
 * state's. */
static struct tri_lock lock = TRI_LOCK_INIT;
static struct tri_recorder *list;
static int idle_looks; /* in a row */
static struct tri_watch watch = {.look = look, .deadline_ns = UINT64_MAX};
static _Atomic bool asleep = true;

/* What there is to wait for, in order of urgency. FORGOTTEN: unknown for UNKNOWN_MS. */
enum activity { IDLE, FORGOTTEN, UNKNOWN, BUSY };

/* The oldest call that has not ended, and the one to ask about and to name (report.h). */
struct pending {
    struct tri_recorded call, named;
    uint64_t since_ns; /* its deadline counts from here; 0: it has not started */
    enum activity activity;
};

static void note_progress(struct tri_recorder *recorder, const struct tri_progress *progress,
                          uint64_t now)
{
    /* Nothing was known to be open, and now any of several calls may be, perhaps the newest, which
     * was made just now; or one that a look has seen without a mark, and that may have ended since. */
    const bool resumed =
        recorder->seen.ended >= recorder->seen.marked &&
        (progress->marked > progress->ended + 1 ||
         (progress->marked > progress->ended && recorder->pending == progress->marked));
    if (progress->ended != recorder->seen.ended || progress->started != recorder->seen.started ||
        resumed)
        recorder->changed_ns = now;
    recorder->seen = *progress;
}

/* The number of the oldest call that is known not to have ended; 0: none. */
static uint64_t oldest_pending(const struct tri_recorder *recorder,
                               const struct tri_progress *progress)
{
    const uint64_t issued = atomic_load(&recorder->issued);
    const uint64_t noticed = progress->marked < issued ? progress->marked : issued;
    if (progress->ended < noticed)
        return progress->ended + 1;
    return atomic_load(&recorder->entered) > issued ? issued + 1 : 0;
}

/* When the rank had entered the call, at the latest: a time that is not of this call itself says
 * less than the look that first found call `number` pending. */
static uint64_t entered_by(struct tri_recorder *recorder, uint64_t number,
                           const struct tri_recorded *call, uint64_t now)
{
    if (number != recorder->pending) {
        recorder->pending = number;
        recorder->pending_ns = now;
    }
    return call->exact && call->number == number ? call->entered_ns : recorder->pending_ns;
}

/* The newest call, whose end nobody will notice. It is pending if a rank has not made it, as far as
 * is known. Otherwise only the backend's library can report an error of it. */
static void find_unmarked(struct pending *out, struct tri_recorder *recorder,
                          const struct tri_progress *progress, uint64_t now)
{
    if (progress->ended >= atomic_load(&recorder->issued) ||
        !tri_recorder_newest(recorder, &out->call))
        return;
    const uint64_t entered_ns = entered_by(recorder, out->call.number, &out->call, now);
    if (tri_report_missing(NULL, 0, list, recorder->comm, &out->call) > 0) {
        out->since_ns = entered_ns;
        out->activity = BUSY;
    } else {
        const uint64_t forgotten_ns = out->call.entered_ns + (uint64_t)UNKNOWN_MS * MS;
        out->activity = now < forgotten_ns ? UNKNOWN : FORGOTTEN;
    }
    out->named = out->call;
}

/* A call inside the backend has started. The deadline of a call whose start is unknown counts from
 * the end of the call before, or from its own beginning. */
static void find_pending(struct pending *out, struct tri_recorder *recorder, uint64_t now)
{
    const struct tri_transport_ops *ops = recorder->comm->backend->transport;
    struct tri_progress progress;
    *out = (struct pending){.activity = IDLE};
    ops->progress(recorder->comm->transport, &progress);
    note_progress(recorder, &progress, now);
    const uint64_t number = oldest_pending(recorder, &progress);
    if (number == 0) {
        find_unmarked(out, recorder, &progress, now);
        return;
    }
    out->activity = BUSY;
    if (!tri_recorder_from(recorder, number, &out->call))
        return;
    const uint64_t entered_ns = entered_by(recorder, number, &out->call, now);
    const bool queued = number <= atomic_load(&recorder->issued);
    if (!queued || !tri_report_pending(&out->named, recorder, &progress))
        out->named = out->call;
    if (queued && number > progress.started)
        return;
    out->since_ns = entered_ns > recorder->changed_ns ? entered_ns : recorder->changed_ns;
}

static bool is_late(const struct trib_comm *comm, const struct pending *pending, uint64_t now)
{
    return pending->since_ns != 0 && pending->call.timeout_ms != TRIB_NO_TIMEOUT &&
           now > pending->since_ns + (uint64_t)pending->call.timeout_ms * MS &&
           now > tri_abort_deferred(comm->state);
}

/* When a question about the call is due that was last asked at `asked` (0: never). */
static uint64_t next_question(const struct pending *pending, uint64_t asked)
{
    const uint64_t half = (uint64_t)pending->call.timeout_ms * MS / 2;
    const uint64_t first = half < (uint64_t)WONDER_MS * MS ? half : (uint64_t)WONDER_MS * MS;
    const uint64_t since = pending->call.entered_ns;
    return asked <= since ? since + first : asked + (asked - since);
}

/* Ask the ranks in other processes about a call that is late since `due`. Returns true if they have
 * been asked since then, and have answered, or if there is nothing to ask. */
static bool ask_after(const struct trib_comm *comm, const struct tri_recorded *call, uint64_t due)
{
    if (comm->remote == NULL || !tri_report_asks(call))
        return true;
    const uint64_t asked = tri_remote_asked_ns(comm->remote, call->collective);
    if (asked <= due)
        tri_remote_ask(comm->remote, call->collective);
    return asked > due && tri_remote_answered(comm->remote);
}

/* Ask the ranks in other processes about a call that takes long, or is late. Returns true if they
 * have been asked since it has been late, and have answered. */
static bool inquire(const struct trib_comm *comm, const struct pending *pending, uint64_t now)
{
    if (comm->remote == NULL || pending->activity == IDLE || !tri_report_asks(&pending->named))
        return true;
    const uint64_t collective = pending->named.collective;
    const uint64_t deadline = pending->since_ns + (uint64_t)pending->call.timeout_ms * MS;
    const uint64_t deferred = tri_abort_deferred(comm->state);
    if (is_late(comm, pending, now))
        return ask_after(comm, &pending->named, deadline > deferred ? deadline : deferred);
    if (now >= next_question(pending, tri_remote_asked_ns(comm->remote, collective)))
        tri_remote_ask(comm->remote, collective);
    return true;
}

/* Dump all recorders, if somebody wants that. */
static void dump(const char *reason)
{
    struct tri_text text = TRI_TEXT_GROWS;
    if (!tri_dump_wanted())
        return;
    tri_dump_format(&text, list, reason);
    tri_dump_post(&text);
}

/* Log why the communicator has ended, and what its ranks were doing, once for all ranks. */
static void report_end(const struct trib_comm *comm, const char *reason)
{
    tri_report_ranks(list, comm);
    dump(reason);
    for (struct tri_recorder *recorder = list; recorder != NULL; recorder = recorder->next)
        recorder->reported = recorder->reported || recorder->comm->state == comm->state;
}

/* Who is lost to `call`; the first TRI_LOST_MAX to `out`. TRIB_ERR_CLOSED: only those that have
 * closed, because the others have not had the time that they have. */
static int32_t find_lost(int32_t *out, const struct trib_comm *comm,
                         const struct tri_recorded *call, trib_status status)
{
    if (status == TRIB_ERR_CLOSED)
        return tri_remote_left_before(comm->remote, call->collective, out, TRI_LOST_MAX);
    const int32_t n = tri_report_missing(out, TRI_LOST_MAX, list, comm, call);
    return n > 0 ? n : tri_report_silent(out, TRI_LOST_MAX, comm, call);
}

/* End the communicator, and report that; `n` ranks are lost, of which `lost` has TRI_LOST_MAX. */
static void end(const struct trib_comm *comm, trib_status status, const char *detail,
                const int32_t *lost, int32_t n)
{
    const struct tri_transport_ops *ops = comm->backend->transport;
    if (!tri_abort_raise_lost(comm->state, status, detail, lost,
                              n < TRI_LOST_MAX ? n : TRI_LOST_MAX))
        return;
    report_end(comm, status == TRIB_ERR_TIMEOUT ? "timeout" : "abort");
    if (status == TRIB_ERR_TIMEOUT && ops->diagnose != NULL)
        ops->diagnose(comm->transport);
}

static void describe(struct tri_report *out, const struct trib_comm *comm,
                     const struct pending *pending, uint64_t now)
{
    const uint64_t since = pending->since_ns == 0 ? pending->call.entered_ns : pending->since_ns;
    tri_report_timeout(out, list, comm, &pending->named, now > since ? now - since : 0);
}

static void give_up(const struct trib_comm *comm, const struct pending *pending, trib_status status,
                    uint64_t now)
{
    struct tri_report report;
    int32_t lost[TRI_LOST_MAX];
    describe(&report, comm, pending, now);
    const int32_t n = find_lost(lost, comm, &pending->named, status);
    end(comm, status, report.sentence, lost, n);
}

/* Does it wait for a rank of another process that has closed? */
static bool waits_in_vain(const struct trib_comm *comm, const struct pending *pending)
{
    return comm->remote != NULL && pending->activity == BUSY && pending->named.all_ranks &&
           tri_remote_left_before(comm->remote, pending->named.collective, NULL, 0) > 0;
}

static enum activity examine(struct tri_recorder *recorder, uint64_t now)
{
    const struct trib_comm *comm = recorder->comm;
    struct pending pending;
    tri_pace_look(&recorder->pace);
    if (tri_abort_ask(comm->state) != TRIB_OK) {
        if (!recorder->reported)
            report_end(comm, "abort");
        return IDLE;
    }
    find_pending(&pending, recorder, now);
    if (waits_in_vain(comm, &pending))
        give_up(comm, &pending, TRIB_ERR_CLOSED, now);
    else if (inquire(comm, &pending, now) && is_late(comm, &pending, now))
        give_up(comm, &pending, TRIB_ERR_TIMEOUT, now);
    return pending.activity;
}

/* A send or receive of before may be in order: if a rank is known not to have made the newest call,
 * in which the rank itself waits, that is what it waits for. */
static void prefer_newest(struct pending *pending, const struct trib_comm *comm)
{
    struct tri_recorded newest;
    if (pending->activity != BUSY || pending->named.all_ranks ||
        !tri_recorder_newest(comm->recorder, &newest) ||
        tri_report_missing(NULL, 0, list, comm, &newest) == 0)
        return;
    pending->call = pending->named = newest;
    pending->since_ns = newest.entered_ns;
}

/* Locked. */
static void end_blocked(const struct trib_comm *comm, struct pending *pending, const char *why,
                        const char *otherwise, uint64_t now)
{
    char detail[TRI_DETAIL_SIZE] = "";
    struct tri_text text = {.data = detail, .room = sizeof detail};
    struct tri_report report = {""};
    int32_t lost[TRI_LOST_MAX];
    prefer_newest(pending, comm);
    const int32_t n = find_lost(lost, comm, &pending->named, TRIB_ERR_TIMEOUT);
    if (n > 0 || pending->activity == BUSY)
        describe(&report, comm, pending, now);
    tri_text_add(&text, "%s%s", report.sentence[0] == '\0' ? otherwise : why, report.sentence);
    end(comm, TRIB_ERR_TIMEOUT, detail, lost, n);
}

uint64_t tri_watchdog_blocked(struct trib_comm *comm, const char *why, const char *otherwise,
                              uint64_t due_ns)
{
    struct pending pending;
    uint64_t again = 0;
    tri_lock(&lock);
    const uint64_t now = tri_now_ns();
    if (tri_abort_live(comm->state)) {
        find_pending(&pending, comm->recorder, now);
        if (ask_after(comm, &pending.named, due_ns))
            end_blocked(comm, &pending, why, otherwise, now);
        else
            again = now + MS;
    }
    tri_unlock(&lock);
    return again;
}

static enum activity examine_all(void)
{
    const uint64_t now = tri_now_ns();
    enum activity most = IDLE;
    for (struct tri_recorder *recorder = list; recorder != NULL; recorder = recorder->next) {
        const enum activity activity = examine(recorder, now);
        if (activity > most)
            most = activity;
    }
    return most;
}

/* Returns the time of the next look, unless a call comes before. */
static uint64_t fall_asleep(void)
{
    atomic_store(&asleep, true);
    const enum activity activity = examine_all();
    if (activity <= FORGOTTEN)
        return activity == IDLE ? UINT64_MAX : tri_deadline_ns(RARE_MS);
    atomic_store(&asleep, false);
    return tri_deadline_ns(PERIOD_MS);
}

static uint64_t look(void *nothing)
{
    (void)nothing;
    tri_lock(&lock);
    atomic_store(&asleep, false);
    const enum activity activity = examine_all();
    idle_looks = activity <= FORGOTTEN ? idle_looks + 1 : 0;
    const uint64_t next = idle_looks > IDLE_LOOKS
                              ? fall_asleep()
                              : tri_deadline_ns(activity == UNKNOWN ? SLOW_MS : PERIOD_MS);
    tri_unlock(&lock);
    return next;
}

trib_status tri_watchdog_start(void)
{
    static struct tri_lock once = TRI_LOCK_INIT; /* guards `started` */
    static bool started;
    tri_lock(&once);
    const trib_status status = started ? TRIB_OK : tri_watch_begin(&watch);
    if (!started)
        tri_dump_begin();
    started = status == TRIB_OK;
    tri_unlock(&once);
    return status;
}

void tri_watchdog_begin(struct trib_comm *comm)
{
    if (comm->recorder == NULL)
        return;
    tri_lock(&lock);
    comm->recorder->next = list;
    list = comm->recorder;
    tri_unlock(&lock);
}

void tri_watchdog_end(struct trib_comm *comm)
{
    if (comm->recorder == NULL)
        return;
    tri_lock(&lock);
    if (!comm->recorder->reported && !tri_abort_live(comm->state))
        report_end(comm, "abort");
    struct tri_recorder **link = &list;
    while (*link != NULL && *link != comm->recorder)
        link = &(*link)->next;
    if (*link != NULL)
        *link = comm->recorder->next;
    tri_unlock(&lock);
}

void tri_watchdog_wake(void)
{
    if (atomic_load(&asleep) && atomic_exchange(&asleep, false))
        tri_watch_sooner(&watch, tri_deadline_ns(PERIOD_MS));
}

void tri_watchdog_visit(void (*visit)(const struct tri_recorder *list, void *context),
                        void *context)
{
    tri_lock(&lock);
    visit(list, context);
    tri_unlock(&lock);
}

trib_status tri_watchdog_dump(const char *path)
{
    struct tri_text text = TRI_TEXT_GROWS;
    tri_lock(&lock);
    tri_dump_format(&text, list, "request");
    tri_unlock(&lock);
    const trib_status status =
        text.failed ? tri_fail(TRIB_ERR_OUT_OF_MEMORY, "trib_dump: no memory for the dump")
                    : tri_file_write(path, text.data, text.used);
    free(text.data);
    return status;
}
