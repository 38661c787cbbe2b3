/* The flight recorder as JSON. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/core/dump.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "csrc/base/clock.h"
#include "csrc/base/file.h"
#include "csrc/base/lock.h"
#include "csrc/base/log.h"
#include "csrc/base/machine.h"
#include "csrc/base/types.h"
#include "csrc/core/communicator.h"
#include "csrc/core/operation.h"
#include "csrc/core/remote_ask.h"
#include "csrc/core/standing.h"

enum { FORMAT = 1, PATH_SIZE = 1024, NAME_SIZE = 256, UNASKED = 16 };

/* Guards the three below. */
static struct tri_lock lock = TRI_LOCK_INIT;
static char prefix[PATH_SIZE]; /* "": no dumps that nobody asks for */
static bool chosen;            /* by the program */
static uint32_t unasked;       /* dumps so far */

trib_status tri_dump_set(const char *chosen_prefix)
{
    const char *text = chosen_prefix == NULL ? "" : chosen_prefix;
    if (strlen(text) >= sizeof prefix)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "trib_dump_set: `prefix` has %zu characters; expected less than %zu",
                        strlen(text), sizeof prefix);
    tri_lock(&lock);
    chosen = true;
    (void)snprintf(prefix, sizeof prefix, "%s", text);
    tri_unlock(&lock);
    return TRIB_OK;
}

void tri_dump_begin(void)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): once, and the library changes no environment */
    const char *wanted = getenv("TRIBUTARY_DUMP");
    tri_lock(&lock);
    if (!chosen && wanted != NULL)
        (void)snprintf(prefix, sizeof prefix, "%s", wanted);
    tri_unlock(&lock);
}

bool tri_dump_wanted(void)
{
    tri_lock(&lock);
    const bool wanted = prefix[0] != '\0' && unasked < UNASKED;
    tri_unlock(&lock);
    return wanted;
}

/* -------------------------------------------------------------------------------------- format */

static const char *const states[] = {[TRIB_COMM_LIVE] = "live",
                                     [TRIB_COMM_ABORTING] = "aborting",
                                     [TRIB_COMM_ABORTED] = "aborted",
                                     [TRIB_COMM_PARKED] = "parked",
                                     [TRIB_COMM_RECLAIMED] = "reclaimed"};

static const char *const standings[] = {[TRI_ENTERED] = "entered",
                                        [TRI_QUEUED] = "queued",
                                        [TRI_STARTED] = "started",
                                        [TRI_DONE] = "done",
                                        [TRI_UNKNOWN] = "unknown"};

static void add_number_or_null(struct tri_text *out, const char *name, uint64_t number, bool known)
{
    if (known)
        tri_text_add(out, "\"%s\": %" PRIu64 ", ", name, number);
    else
        tri_text_add(out, "\"%s\": null, ", name);
}

static void add_name(struct tri_text *out, const char *name, const char *string)
{
    tri_text_add(out, "\"%s\": ", name);
    tri_text_add_json(out, string);
    tri_text_add(out, ", ");
}

static void add_call(struct tri_text *out, const struct tri_recorded *call, const char *state,
                     uint64_t now)
{
    tri_text_add(out, "{\"number\": %" PRIu64 ", ", call->number);
    add_number_or_null(out, "collective", call->collective, call->all_ranks);
    add_name(out, "operation", tri_operations[call->operation].name);
    tri_text_add(out, "\"count\": %" PRIu64 ", ", call->count);
    add_name(out, "dtype", call->dtype == 0 ? NULL : trib_dtype_name(call->dtype));
    add_name(out, "op", call->op == 0 ? NULL : trib_op_name(call->op));
    add_number_or_null(out, "peer", (uint64_t)call->peer, call->peer >= 0);
    add_name(out, "algorithm", call->algorithm);
    add_name(out, "state", state);
    tri_text_add(out,
                 "\"age_ms\": %.3f, \"exact\": %s, \"timeout_ms\": %" PRIu32
                 ", \"stream\": \"0x%" PRIx64 "\"}",
                 (double)tri_recorded_age(call, now) / 1e6, call->exact ? "true" : "false",
                 call->timeout_ms, call->stream);
}

static void add_calls(struct tri_text *out, const struct tri_recorder *recorder,
                      const struct tri_progress *progress, uint64_t now)
{
    const uint64_t entered = atomic_load(&recorder->entered);
    const char *before = "\n   ";
    for (uint64_t n = entered > TRI_RECORDS ? entered - TRI_RECORDS + 1 : 1; n <= entered; n++) {
        struct tri_recorded call;
        if (!tri_recorder_read(recorder, n, &call))
            continue;
        tri_text_add(out, "%s", before);
        add_call(out, &call, standings[tri_standing_of(recorder, &call, progress)], now);
        before = ",\n   ";
    }
}

static const char *const ways[] = {[TRI_PEER_GONE] = "none",
                                   [TRI_PEER_HERE] = "here",
                                   [TRI_PEER_UNIX] = "unix",
                                   [TRI_PEER_TCP] = "tcp"};

static const char *const peer_states[] = {
    [TRI_REMOTE_PRESENT] = "present", [TRI_REMOTE_LEFT] = "closed", [TRI_REMOTE_DEAD] = "dead"};

/* A rank in another process, and what it has said last. */
static void add_peer(struct tri_text *out, int32_t rank, const struct tri_remote_rank *of,
                     uint64_t now)
{
    const struct tri_remote_message *said = &of->said;
    tri_text_add(out, "{\"rank\": %d, ", (int)rank);
    add_name(out, "host", of->host);
    tri_text_add(out, "\"process\": %d, ", (int)of->process);
    add_name(out, "way", ways[of->way]);
    add_name(out, "state", peer_states[of->state]);
    add_name(out, "detail", of->death[0] == '\0' ? NULL : of->death);
    const bool known = of->said_ns != 0 && said->recorded;
    add_number_or_null(out, "entered", said->entered, known);
    add_number_or_null(out, "issued", said->issued, known);
    add_number_or_null(out, "collective", said->newest.record.collective,
                       known && said->newest.known);
    tri_text_add(out, "\"age_ms\": %.3f}",
                 of->said_ns == 0 || now < of->said_ns ? 0 : (double)(now - of->said_ns) / 1e6);
}

static void add_peers(struct tri_text *out, const struct trib_comm *comm, uint64_t now)
{
    const char *before = "\n   ";
    for (int32_t rank = 0; comm->remote != NULL && rank < comm->size; rank++) {
        struct tri_remote_rank of;
        tri_remote_look(comm->remote, rank, &of);
        if (of.state == TRI_REMOTE_HERE)
            continue;
        tri_text_add(out, "%s", before);
        add_peer(out, rank, &of, now);
        before = ",\n   ";
    }
}

static void add_communicator(struct tri_text *out, const struct tri_recorder *recorder,
                             uint64_t now)
{
    const struct trib_comm *comm = recorder->comm;
    const char *why = "";
    const trib_status status = tri_abort_why(comm->state, &why);
    struct tri_progress progress;
    tri_standing_read(recorder, &progress);
    tri_text_add(out, "{\"identity\": \"%016" PRIx64 "\", \"rank\": %d, \"size\": %d, ",
                 comm->identity, (int)comm->rank, (int)comm->size);
    add_name(out, "name", comm->config.name[0] == '\0' ? NULL : comm->config.name);
    add_name(out, "backend", comm->backend->name);
    tri_text_add(out, "\"device\": %d, ", (int)comm->device);
    add_name(out, "status", trib_status_name(status));
    add_name(out, "detail", why);
    add_name(out, "state", states[tri_abort_state(comm->state, NULL, 0)]);
    tri_text_add(out, "\"entered\": %" PRIu64 ", \"issued\": %" PRIu64 ", ",
                 (uint64_t)atomic_load(&recorder->entered),
                 (uint64_t)atomic_load(&recorder->issued));
    add_number_or_null(out, "started", progress.started, progress.started != UINT64_MAX);
    tri_text_add(out, "\"ended\": %" PRIu64 ",\n  \"memory\": ", progress.ended);
    tri_memory_format(out, comm->owner);
    tri_text_add(out, ", \"peers\": [");
    add_peers(out, comm, now);
    tri_text_add(out, "], \"calls\": [");
    add_calls(out, recorder, &progress, now);
    tri_text_add(out, "]}");
}

static uint64_t wall_clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void tri_dump_format(struct tri_text *out, const struct tri_recorder *list, const char *reason)
{
    char host[NAME_SIZE];
    const char *before = "\n ";
    const uint64_t now = tri_now_ns();
    tri_machine_name(host, sizeof host);
    tri_text_add(out, "{\"tributary\": \"%d.%d.%d\", \"format\": %d, ", TRIB_VERSION_MAJOR,
                 TRIB_VERSION_MINOR, TRIB_VERSION_PATCH, FORMAT);
    add_name(out, "reason", reason);
    add_name(out, "host", host);
    tri_text_add(out, "\"process\": %ld, \"unix_ns\": %" PRIu64 ", \"communicators\": [",
                 tri_machine_process(), wall_clock_ns());
    for (const struct tri_recorder *recorder = list; recorder != NULL; recorder = recorder->next) {
        tri_text_add(out, "%s", before);
        add_communicator(out, recorder, now);
        before = ",\n ";
    }
    tri_text_add(out, "]}\n");
}

/* --------------------------------------------------------------------------------------- write */

void tri_dump_post(struct tri_text *text)
{
    char host[NAME_SIZE], path[PATH_SIZE + NAME_SIZE + 64];
    tri_machine_name(host, sizeof host);
    tri_lock(&lock);
    (void)snprintf(path, sizeof path, "%s%s-%ld-%" PRIu32 ".json", prefix, host,
                   tri_machine_process(), ++unasked);
    tri_unlock(&lock);
    if (text->failed) {
        tri_log(TRIB_LOG_ERROR, "no memory for the dump \"%s\"", path);
        free(text->data);
        return;
    }
    tri_log(TRIB_LOG_INFO, "the flight recorder is being dumped to \"%s\"", path);
    tri_file_write_later(path, text->data, text->used);
}
