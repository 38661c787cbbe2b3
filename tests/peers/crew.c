/* Several processes whose ranks have channels to each other. */
#define _POSIX_C_SOURCE 200809L
#include "tests/peers/crew.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "csrc/base/clock.h"

void crew_fill(uint8_t *out, size_t length, uint64_t tag)
{
    memcpy(out, &tag, sizeof tag);
    for (size_t i = sizeof tag; i < length; i++)
        out[i] = (uint8_t)(tag * 31 + i * 7);
}

static bool intact(const uint8_t *bytes, size_t length, uint64_t tag)
{
    for (size_t i = sizeof tag; i < length; i++)
        if (bytes[i] != (uint8_t)(tag * 31 + i * 7))
            return false;
    return true;
}

/* ------------------------------------------------------------------------------------ callbacks */

static void add(struct member *member, struct crew_event event)
{
    event.at_ms = check_now_ms();
    pthread_mutex_lock(&member->lock);
    if (member->n < CREW_EVENTS)
        member->events[member->n++] = event;
    pthread_mutex_unlock(&member->lock);
}

static void on_dead(void *context, int32_t rank, const char *text, bool ended)
{
    (void)ended;
    struct crew_event event = {.kind = CREW_DEAD, .rank = rank};
    (void)snprintf(event.text, sizeof event.text, "%s", text);
    add(context, event);
}

static void on_left(void *context, int32_t rank)
{
    add(context, (struct crew_event){.kind = CREW_LEFT, .rank = rank});
}

static void on_message(void *context, int32_t rank, enum tri_peer_type type, const uint8_t *bytes,
                       size_t length)
{
    struct crew_event event = {
        .kind = CREW_MESSAGE, .rank = rank, .type = (int)type, .length = length};
    struct member *member = context;
    memcpy(&event.tag, bytes, length < 8 ? length : 8);
    event.intact = length < 8 || intact(bytes, length, event.tag);
    if (member->slow_ms > 0)
        check_sleep_ms(member->slow_ms);
    add(member, event);
}

static bool on_fd(void *context, int32_t rank, uint64_t tag, int fd)
{
    struct member *member = context;
    add(member, (struct crew_event){.kind = CREW_FD, .rank = rank, .tag = tag, .fd = fd});
    return !member->refuses_fds;
}

int crew_count(struct member *member, enum crew_kind kind, int rank)
{
    int n = 0;
    pthread_mutex_lock(&member->lock);
    for (int i = 0; i < member->n; i++)
        n += member->events[i].kind == kind && (rank < 0 || member->events[i].rank == rank);
    pthread_mutex_unlock(&member->lock);
    return n;
}

static bool find(struct crew_event *out, struct member *member, enum crew_kind kind, int rank,
                 int n)
{
    bool found = false;
    pthread_mutex_lock(&member->lock);
    for (int i = 0; i < member->n && !found; i++) {
        const struct crew_event *event = &member->events[i];
        found = event->kind == kind && (rank < 0 || event->rank == rank) && --n == 0;
        if (found)
            *out = *event;
    }
    pthread_mutex_unlock(&member->lock);
    return found;
}

struct crew_event crew_await(struct member *member, enum crew_kind kind, int rank, int n)
{
    static const char *const names[] = {"messages", "deaths", "ranks that left", "descriptors"};
    struct crew_event event = {.rank = -1, .fd = -1};
    const double end = check_now_ms() + CREW_BOUND_MS;
    while (!find(&event, member, kind, rank, n))
        if (check_now_ms() > end) {
            CHECK_MSG(false, "rank %d waited in vain for %d %s of rank %d: there are %d",
                      member->rank, n, names[kind], rank, crew_count(member, kind, rank));
            break;
        } else {
            check_sleep_ms(1);
        }
    return event;
}

/* ----------------------------------------------------------------------------------------- ranks */

trib_status crew_listen(struct member *member, const char *id)
{
    const struct tri_peers_setup setup = {
        .key_material = (const uint8_t *)id,
        .key_bytes = strlen(id),
        .rank = member->rank,
        .size = member->crew->size,
        .flags = member->crew->flags | TRI_PEERS_LOOPBACK,
        .callbacks = {.dead = on_dead, .left = on_left, .message = on_message, .fd = on_fd},
        .context = member};
    return tri_peers_listen(&member->peers, &setup, &member->crew->addresses[member->rank]);
}

void crew_publish(struct member *member)
{
    children_meet(&member->crew->published, member->crew->size);
}

trib_status crew_connect(struct member *member, int timeout_ms)
{
    return tri_peers_connect(member->peers, member->crew->addresses,
                             tri_deadline_ns((uint32_t)timeout_ms));
}

void crew_open(struct member *member)
{
    CHECK_OK(crew_listen(member, "the id"));
    crew_publish(member);
    CHECK_OK(crew_connect(member, CREW_BOUND_MS));
}

void crew_close(struct member *member)
{
    tri_peers_close(member->peers);
    member->peers = NULL;
}

void crew_meet(struct crew *crew, int meeting, int n)
{
    children_meet(&crew->met[meeting], n);
}

/* ------------------------------------------------------------------------------------- processes */

struct work {
    struct crew *crew;
    void (*body)(struct member *member);
};

static void run_member(int rank, int n, void *argument)
{
    static struct member member = {.lock = PTHREAD_MUTEX_INITIALIZER};
    const struct work *work = argument;
    (void)n;
    atomic_store(&work->crew->pids[rank], (int)getpid());
    member.crew = work->crew;
    member.rank = rank;
    work->body(&member);
}

uint64_t crew_run(int size, int processes, uint32_t flags, void (*body)(struct member *member))
{
    struct child_end ends[CREW_MAX];
    struct crew *crew = children_share(sizeof *crew);
    struct work work = {crew, body};
    crew->size = size;
    crew->flags = flags;
    children_run(ends, processes, 3 * CREW_BOUND_MS, run_member, &work);
    for (int rank = 0; rank < processes; rank++)
        if (!atomic_load(&crew->doomed[rank]))
            children_check(&ends[rank], rank);
    const uint64_t word = atomic_load(&crew->word);
    children_unshare(crew, sizeof *crew);
    return word;
}
