/* Several processes whose ranks have channels to each other. */
#define _GNU_SOURCE
#include "tests/peers/crew.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
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

static void on_dead(void *context, int32_t rank, const char *text)
{
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

static void await(_Atomic int *word, int n)
{
    const double end = check_now_ms() + CREW_BOUND_MS;
    while (atomic_load(word) < n && check_now_ms() < end)
        check_sleep_ms(1);
    CHECK_MSG(atomic_load(word) >= n, "%d of %d came", atomic_load(word), n);
}

void crew_publish(struct member *member)
{
    atomic_fetch_add(&member->crew->published, 1);
    await(&member->crew->published, member->crew->size);
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
    atomic_fetch_add(&crew->met[meeting], 1);
    await(&crew->met[meeting], n);
}

/* ------------------------------------------------------------------------------------- processes */

#ifdef __SANITIZE_ADDRESS__
int __lsan_do_recoverable_leak_check(void);
#endif

/* _exit does not look for leaks. */
static void check_leaks(void)
{
#ifdef __SANITIZE_ADDRESS__
    CHECK(__lsan_do_recoverable_leak_check() == 0);
#endif
}

static void run_child(struct crew *crew, int rank, void (*body)(struct member *member))
{
    static struct member member = {.lock = PTHREAD_MUTEX_INITIALIZER};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(3 * CREW_BOUND_MS / 1000);
    atomic_store(&crew->pids[rank], (int)getpid());
    member.crew = crew;
    member.rank = rank;
    body(&member);
    check_leaks();
    _exit(check_failed() ? EXIT_FAILURE : EXIT_SUCCESS);
}

/* The child's own lines say what failed. */
static void reap(struct crew *crew, int rank, pid_t pid)
{
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid);
    if (atomic_load(&crew->doomed[rank]))
        return;
    CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "process %d: %s", rank,
              WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "a check failed");
}

uint64_t crew_run(int size, int processes, uint32_t flags, void (*body)(struct member *member))
{
    pid_t pids[CREW_MAX];
    struct crew *crew =
        mmap(NULL, sizeof *crew, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (crew == MAP_FAILED)
        abort();
    crew->size = size;
    crew->flags = flags;
    fflush(stdout);
    for (int rank = 0; rank < processes; rank++) {
        pids[rank] = fork();
        if (pids[rank] < 0)
            abort();
        if (pids[rank] == 0)
            run_child(crew, rank, body);
    }
    for (int rank = 0; rank < processes; rank++)
        reap(crew, rank, pids[rank]);
    const uint64_t word = atomic_load(&crew->word);
    (void)munmap(crew, sizeof *crew);
    return word;
}
