/* The abort state: the first raise counts, no thread registers once it has returned, and the hook
 * runs once. */
#include "csrc/base/abort.h"
#include "csrc/base/stopped.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/team.h"

struct hook {
    uint32_t flag;
    _Atomic int calls, polls;
    struct trib_abort *state;
};

static void on_stop(void *context)
{
    struct hook *hook = context;
    atomic_fetch_add(&hook->calls, 1);
    CHECK(__atomic_load_n(&hook->flag, __ATOMIC_ACQUIRE) != 0); /* the flag is set first */
    CHECK(!tri_abort_live(hook->state));
    CHECK(!tri_abort_register(hook->state));
}

static void create(struct hook *hook)
{
    *hook = (struct hook){.flag = 0};
    hook->state = tri_abort_create(&hook->flag, on_stop, hook);
    if (!CHECK(hook->state != NULL))
        abort();
}

static void one_raise_counts(void)
{
    struct hook hook;
    check_begin("one raise counts");
    create(&hook);
    CHECK(tri_abort_live(hook.state));
    CHECK_OK(tri_abort_status(hook.state));
    CHECK(tri_abort_raise(hook.state, TRIB_ERR_TIMEOUT, "too late"));
    CHECK(!tri_abort_raise(hook.state, TRIB_ERR_ABORTED, "again"));
    CHECK(!tri_abort_live(hook.state) && hook.flag == 1 && hook.calls == 1);
    CHECK_STATUS(tri_abort_status(hook.state), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("too late");
    tri_abort_detach(hook.state);
    tri_abort_detach(hook.state);
    CHECK_STATUS(tri_abort_status(hook.state), TRIB_ERR_TIMEOUT);
    tri_abort_release(hook.state);
    tri_abort_release(NULL);
    check_end();
}

static void detached(void)
{
    struct hook hook;
    check_begin("a detached state is raised without its backend");
    create(&hook);
    struct trib_abort *second = tri_abort_retain(hook.state);
    CHECK(second == hook.state);
    tri_abort_detach(hook.state);
    tri_abort_release(hook.state);
    CHECK(tri_abort_raise(second, TRIB_ERR_ABORTED, NULL));
    CHECK(hook.flag == 0 && hook.calls == 0);
    CHECK_STATUS(tri_abort_status(second), TRIB_ERR_ABORTED);
    tri_abort_release(second);
    check_end();
}

static void many_lost(void)
{
    int32_t lost[TRI_LOST_MAX + 1], found[TRI_LOST_MAX] = {0};
    struct hook hook;
    check_begin("of many lost ranks the first are kept");
    for (int32_t i = 0; i <= TRI_LOST_MAX; i++)
        lost[i] = i + 1;
    create(&hook);
    CHECK(tri_abort_raise_lost(hook.state, TRIB_ERR_CLOSED, "many", lost, TRI_LOST_MAX + 1));
    CHECK(tri_abort_lost(hook.state, found, 2) == TRI_LOST_MAX && found[1] == 2 && found[2] == 0);
    CHECK(tri_abort_lost(hook.state, found, TRI_LOST_MAX) == TRI_LOST_MAX);
    CHECK(memcmp(found, lost, sizeof found) == 0);
    tri_abort_detach(hook.state);
    tri_abort_release(hook.state);
    check_end();
}

static _Atomic int given;

static void give(void *flag)
{
    CHECK(*(uint32_t *)flag == 1);
    atomic_fetch_add(&given, 1);
}

static void flag_lifetime(void)
{
    check_begin("the flag is freed with the last reference, unless it is kept");
    for (int kept = 0; kept < 2; kept++) {
        struct hook hook;
        atomic_store(&given, 0);
        create(&hook);
        tri_abort_own_flag(hook.state, give);
        struct trib_abort *second = tri_abort_retain(hook.state);
        if (kept != 0)
            tri_abort_keep_flag(second);
        CHECK(tri_abort_raise(hook.state, TRIB_ERR_ABORTED, "over"));
        tri_abort_detach(hook.state);
        tri_abort_release(hook.state);
        CHECK(atomic_load(&given) == 0);
        tri_abort_release(second);
        CHECK(atomic_load(&given) == 1 - kept);
    }
    check_end();
}

static trib_status found(void *context)
{
    struct hook *hook = context;
    atomic_fetch_add(&hook->polls, 1);
    return tri_fail(TRIB_ERR_NCCL, "found when asked");
}

static void asked(void)
{
    struct hook hook;
    check_begin("tri_abort_ask raises the error that the poll finds");
    create(&hook);
    CHECK_OK(tri_abort_ask(hook.state)); /* no poll: as status */
    tri_abort_set_poll(hook.state, found);
    CHECK_STATUS(tri_abort_ask(hook.state), TRIB_ERR_NCCL);
    CHECK_DETAIL("found when asked");
    CHECK(hook.calls == 1 && hook.flag == 1 && !tri_abort_live(hook.state));
    CHECK_STATUS(tri_abort_ask(hook.state), TRIB_ERR_NCCL);
    CHECK(hook.polls == 1); /* who is over is not asked */
    tri_abort_detach(hook.state);
    tri_abort_release(hook.state);
    create(&hook);
    tri_abort_set_poll(hook.state, found);
    tri_abort_detach(hook.state);
    CHECK_OK(tri_abort_ask(hook.state));
    CHECK(hook.polls == 0);
    tri_abort_release(hook.state);
    check_end();
}

static void in_flight(void)
{
    struct hook hook;
    check_begin("the in-flight count");
    create(&hook);
    CHECK(tri_abort_in_flight(hook.state) == 0);
    CHECK(tri_abort_register(hook.state) && tri_abort_register(hook.state));
    CHECK(tri_abort_in_flight(hook.state) == 2);
    tri_abort_unregister(hook.state);
    CHECK(tri_abort_raise(hook.state, TRIB_ERR_ABORTED, "one is in flight"));
    CHECK(tri_abort_in_flight(hook.state) == 1);
    CHECK(!tri_abort_register(hook.state));
    CHECK(tri_abort_in_flight(hook.state) == 1);
    tri_abort_unregister(hook.state);
    CHECK(tri_abort_in_flight(hook.state) == 0);
    tri_abort_detach(hook.state);
    tri_abort_release(hook.state);
    check_end();
}

/* -------------------------------------------------------------------------------------- states */

struct steps {
    bool interrupted, parked;
    int asked; /* whether everything was interrupted */
};

static bool is_interrupted(void *context, char *text, size_t bytes)
{
    struct steps *steps = context;
    steps->asked++;
    (void)snprintf(text, bytes, "%s", steps->interrupted ? "" : "a stream");
    return steps->interrupted;
}

static bool is_parked(void *context, char *text, size_t bytes)
{
    const struct steps *steps = context;
    (void)snprintf(text, bytes, "%s", steps->parked ? "a graph" : "");
    return steps->parked;
}

static void is(struct trib_abort *state, trib_comm_state wanted, const char *waits_for)
{
    char text[64] = "?";
    const trib_comm_state found = tri_abort_state(state, text, sizeof text);
    CHECK_MSG(found == wanted && strcmp(text, waits_for) == 0,
              "the state is %d (\"%s\"), expected %d (\"%s\")", (int)found, text, (int)wanted,
              waits_for);
}

static void states(void)
{
    static const struct tri_abort_ending ending = {is_interrupted, is_parked};
    struct steps steps = {.asked = 0};
    uint32_t flag = 0;
    char one = 'x';
    check_begin("the state, step by step");
    struct trib_abort *state = tri_abort_create(&flag, NULL, &steps);
    tri_abort_set_ending(state, &ending);
    is(state, TRIB_COMM_LIVE, "");
    CHECK(tri_abort_register(state) && tri_abort_register(state));
    is(state, TRIB_COMM_LIVE, "");
    CHECK(tri_abort_raise(state, TRIB_ERR_ABORTED, "now"));
    is(state, TRIB_COMM_ABORTING, "2 calls that are in flight");
    tri_abort_unregister(state);
    is(state, TRIB_COMM_ABORTING, "1 call that is in flight");
    CHECK(steps.asked == 0);
    tri_abort_unregister(state);
    is(state, TRIB_COMM_ABORTING, "a stream");
    CHECK(tri_abort_state(state, &one, 1) == TRIB_COMM_ABORTING && one == '\0');
    CHECK(tri_abort_state(state, NULL, 0) == TRIB_COMM_ABORTING && steps.asked == 3);
    steps.interrupted = true;
    is(state, TRIB_COMM_ABORTED, "");
    steps.interrupted = false; /* once is enough */
    is(state, TRIB_COMM_ABORTED, "");
    CHECK(steps.asked == 4);
    steps.parked = true;
    is(state, TRIB_COMM_PARKED, "a graph");
    steps.parked = false;
    is(state, TRIB_COMM_ABORTED, "");
    tri_abort_detach(state);
    steps.parked = true;
    is(state, TRIB_COMM_ABORTED, "");
    tri_abort_reclaimed(state);
    is(state, TRIB_COMM_RECLAIMED, "");
    tri_abort_release(state);
    check_end();
}

static void reclaimed_alive(void)
{
    struct hook hook;
    check_begin("what was never aborted is reclaimed all the same");
    create(&hook);
    tri_abort_detach(hook.state);
    is(hook.state, TRIB_COMM_LIVE, "");
    tri_abort_reclaimed(hook.state);
    is(hook.state, TRIB_COMM_RECLAIMED, "");
    CHECK(tri_abort_raise(hook.state, TRIB_ERR_ABORTED, "too late"));
    is(hook.state, TRIB_COMM_RECLAIMED, "");
    tri_abort_release(hook.state);
    check_end();
}

static bool raise_it(void *context)
{
    return tri_abort_raise(context, TRIB_ERR_ABORTED, "in turn");
}

static void raised_in_turn(void *context, bool relayed)
{
    (void)relayed;
    (void)raise_it(context);
}

/* Two parts, one of which closes in good order. */
static void parts(void)
{
    struct hook whole, part, closed;
    check_begin("the state of a whole is no further than its parts");
    create(&whole);
    create(&part);
    create(&closed);
    CHECK(tri_abort_add_part(whole.state, part.state) &&
          tri_abort_add_part(whole.state, part.state) &&
          tri_abort_add_part(whole.state, closed.state));
    is(whole.state, TRIB_COMM_LIVE, "");
    tri_abort_reclaimed(closed.state);
    is(whole.state, TRIB_COMM_LIVE, "");
    CHECK(tri_abort_register(part.state) && tri_abort_register(whole.state));
    CHECK(tri_abort_raise(whole.state, TRIB_ERR_ABORTED, "now"));
    is(whole.state, TRIB_COMM_ABORTING, "1 call that is in flight");
    tri_abort_unregister(whole.state);
    is(whole.state, TRIB_COMM_ABORTING, ""); /* nobody has stopped the part yet */
    CHECK(tri_abort_raise(part.state, TRIB_ERR_ABORTED, "now"));
    is(whole.state, TRIB_COMM_ABORTING, "1 call that is in flight");
    tri_abort_unregister(part.state);
    is(whole.state, TRIB_COMM_ABORTED, "");
    tri_abort_reclaimed(whole.state);
    is(whole.state, TRIB_COMM_ABORTED, "");
    tri_abort_release(part.state); /* the whole has it */
    is(whole.state, TRIB_COMM_ABORTED, "");
    tri_abort_reclaimed(part.state);
    is(whole.state, TRIB_COMM_RECLAIMED, "");
    tri_abort_release(closed.state);
    tri_abort_release(whole.state);
    create(&whole);
    create(&part);
    CHECK(tri_abort_add_part(whole.state, part.state));
    tri_abort_set_poll(part.state, found);
    CHECK_OK(tri_abort_ask(whole.state)); /* nobody stops them together */
    CHECK_STATUS(tri_abort_status(part.state), TRIB_ERR_NCCL);
    tri_abort_reclaimed(part.state);
    tri_abort_release(part.state);
    tri_abort_release(whole.state);
    create(&whole);
    create(&part);
    CHECK(tri_abort_add_part(whole.state, part.state));
    tri_abort_reclaimed(whole.state);
    is(whole.state, TRIB_COMM_LIVE, ""); /* closed, as the part is not yet */
    tri_abort_reclaimed(part.state);
    is(whole.state, TRIB_COMM_RECLAIMED, "");
    tri_abort_release(whole.state);
    tri_abort_release(part.state);
    check_end();
}

/* Each stops the other; two threads stop both at once, while a third one asks. */
enum { PAIRS = 2000 };

struct pair {
    struct trib_abort *of[2];
    _Atomic int arrived;
};

static void pair_member(int index, int size, void *argument)
{
    struct pair *pair = argument;
    atomic_fetch_add(&pair->arrived, 1);
    while (pair->arrived < size)
        continue;
    if (index < 2)
        (void)raise_it(pair->of[index]);
    while (index == 2 && tri_abort_state(pair->of[0], NULL, 0) < TRIB_COMM_ABORTED)
        continue;
}

static void in_turn(void)
{
    check_begin("two that stop each other, at once");
    for (int i = 0; i < PAIRS; i++) {
        struct hook hooks[2];
        struct tri_abort_observer observers[2];
        struct pair pair = {.arrived = 0};
        for (int of = 0; of < 2; of++) {
            create(&hooks[of]);
            pair.of[of] = hooks[of].state;
        }
        CHECK(tri_abort_add_part(pair.of[0], pair.of[1]));
        for (int of = 0; of < 2; of++) {
            observers[of] =
                (struct tri_abort_observer){.raised = raised_in_turn, .context = pair.of[!of]};
            tri_abort_observe(pair.of[of], &observers[of]);
        }
        check_ranks(3, pair_member, &pair);
        for (int of = 0; of < 2; of++) {
            CHECK(!tri_abort_live(pair.of[of]));
            tri_abort_unobserve(pair.of[of], &observers[of]);
        }
        tri_abort_release(pair.of[0]);
        tri_abort_release(pair.of[1]);
    }
    check_end();
}

/* An observer of a part stops the whole, while another thread keeps the whole's flag, and with it the part's. */
struct kept_late {
    struct trib_abort *whole;
    pthread_t keeper;
};

static void *keep_it(void *whole)
{
    tri_abort_keep_flag(whole);
    return NULL;
}

static void keeps_and_raises(void *context, bool relayed)
{
    struct kept_late *late = context;
    (void)relayed;
    if (!CHECK(pthread_create(&late->keeper, NULL, keep_it, late->whole) == 0))
        abort();
    check_sleep_ms(50); /* it waits for the part, whose lock is held here */
    (void)raise_it(late->whole);
}

static void kept_meanwhile(void)
{
    struct hook whole, part;
    struct kept_late late;
    struct tri_abort_observer observer = {.raised = keeps_and_raises, .context = &late};
    check_begin("a part stops the whole, whose flag another thread keeps");
    create(&whole);
    create(&part);
    late.whole = whole.state;
    CHECK(tri_abort_add_part(whole.state, part.state));
    tri_abort_observe(part.state, &observer);
    CHECK(raise_it(part.state));
    CHECK(!tri_abort_live(whole.state) && whole.calls == 1);
    CHECK(pthread_join(late.keeper, NULL) == 0);
    tri_abort_unobserve(part.state, &observer);
    tri_abort_release(whole.state);
    tri_abort_release(part.state);
    check_end();
}

/* Many threads register and unregister until a raise stops them; some raise. */
enum { VISITORS = 4, RAISERS = 3 };

struct crowd {
    struct hook hook;
    _Atomic int arrived, winners, shut, visits;
};

static void crowd_member(int index, int size, void *argument)
{
    struct crowd *crowd = argument;
    struct trib_abort *state = tri_abort_retain(crowd->hook.state);
    team_barrier(&crowd->arrived, size);
    if (index >= VISITORS) {
        char detail[32];
        (void)snprintf(detail, sizeof detail, "number %d", index);
        while (atomic_load(&crowd->visits) < 100)
            continue;
        if (tri_abort_raise(state, TRIB_ERR_ABORTED, detail))
            atomic_fetch_add(&crowd->winners, 1);
        CHECK(!tri_abort_live(state));
        atomic_store(&crowd->shut, 1);
    } else {
        for (;;) {
            const int shut = atomic_load(&crowd->shut);
            if (!tri_abort_register(state))
                break;
            CHECK(!shut); /* a raise had returned, and a thread registered */
            atomic_fetch_add(&crowd->visits, 1);
            tri_abort_unregister(state);
        }
        CHECK_STATUS(tri_abort_status(state), TRIB_ERR_ABORTED);
        CHECK_DETAIL("number ");
    }
    tri_abort_release(state);
}

static void crowds(void)
{
    check_begin("many threads register while some raise");
    for (int round = 0; round < 50; round++) {
        struct crowd crowd = {.arrived = 0};
        create(&crowd.hook);
        check_ranks(VISITORS + RAISERS, crowd_member, &crowd);
        CHECK(crowd.winners == 1 && crowd.hook.calls == 1);
        CHECK(tri_abort_in_flight(crowd.hook.state) == 0);
        tri_abort_detach(crowd.hook.state);
        tri_abort_release(crowd.hook.state);
    }
    check_end();
}

struct seen {
    struct tri_abort_observer observer;
    struct hook *hook;
    int calls;
    bool relayed;
};

static void on_raised(void *context, bool relayed)
{
    struct seen *seen = context;
    CHECK(seen->hook->calls == 1); /* the hook runs first */
    seen->calls++;
    seen->relayed = relayed;
}

static void observe(struct seen *seen, struct hook *hook)
{
    *seen = (struct seen){.hook = hook};
    seen->observer = (struct tri_abort_observer){.raised = on_raised, .context = seen};
    tri_abort_observe(hook->state, &seen->observer);
}

static void observers(void)
{
    struct hook hook;
    struct seen first, gone, last, late;
    check_begin("observers");
    for (int relayed = 0; relayed < 2; relayed++) {
        create(&hook);
        observe(&first, &hook);
        observe(&gone, &hook);
        observe(&last, &hook);
        tri_abort_unobserve(hook.state, &gone.observer);
        tri_abort_unobserve(hook.state, &gone.observer);
        const int32_t lost = 3;
        CHECK((relayed ? tri_abort_raise_relayed : tri_abort_raise_lost)(
            hook.state, TRIB_ERR_CLOSED, "rank 3 is lost", &lost, 1));
        CHECK(tri_abort_lost(hook.state, NULL, 0) == 1);
        CHECK(first.calls == 1 && last.calls == 1 && gone.calls == 0);
        CHECK(first.relayed == relayed && last.relayed == relayed);
        CHECK(!tri_abort_raise(hook.state, TRIB_ERR_ABORTED, "again"));
        tri_abort_detach(hook.state); /* they outlive the backend's part */
        observe(&late, &hook);
        CHECK(late.calls == 1 && late.relayed == relayed && first.calls == 1);
        tri_abort_unobserve(hook.state, &first.observer);
        tri_abort_unobserve(hook.state, &last.observer);
        tri_abort_unobserve(hook.state, &late.observer);
        tri_abort_release(hook.state);
    }
    check_end();
}

struct leaver {
    struct hook hook;
    struct tri_abort_observer observer;
    int calls, shut;
};

static void on_leaver_told(void *context, bool relayed)
{
    struct leaver *leaver = context;
    (void)relayed;
    CHECK(!leaver->shut);
    leaver->calls++;
}

static void leave_or_raise(int index, int size, void *argument)
{
    struct leaver *leaver = argument;
    (void)size;
    if (index == 0) {
        static const int32_t lost[TRI_LOST_MAX];
        CHECK(
            tri_abort_raise_lost(leaver->hook.state, TRIB_ERR_ABORTED, "now", lost, TRI_LOST_MAX));
        return;
    }
    while (tri_abort_live(leaver->hook.state))
        continue;
    CHECK(tri_abort_lost(leaver->hook.state, NULL, 0) == TRI_LOST_MAX); /* all are there */
    tri_abort_unobserve(leaver->hook.state, &leaver->observer);
    CHECK(leaver->calls == 1);
    leaver->shut = 1;
}

/* Who leaves after the stop has been told, or is now. */
static void leavers(void)
{
    check_begin("an observer leaves while another thread raises");
    for (int round = 0; round < 2000; round++) {
        struct leaver leaver = {.calls = 0};
        create(&leaver.hook);
        leaver.observer = (struct tri_abort_observer){.raised = on_leaver_told, .context = &leaver};
        tri_abort_observe(leaver.hook.state, &leaver.observer);
        check_ranks(2, leave_or_raise, &leaver);
        CHECK(leaver.calls == 1);
        tri_abort_detach(leaver.hook.state);
        tri_abort_release(leaver.hook.state);
    }
    check_end();
}

/* A state whose observer stops another, and takes its time. */
struct chain {
    struct hook first, second;
    struct tri_abort_observer observer;
};

static void stop_second(void *context, bool relayed)
{
    static const int32_t lost = 5;
    struct chain *chain = context;
    (void)relayed;
    check_sleep_ms(20);
    (void)tri_abort_raise_lost(chain->second.state, TRIB_ERR_CLOSED, "with the first", &lost, 1);
}

static void raise_or_follow(int index, int size, void *argument)
{
    struct chain *chain = argument;
    (void)size;
    if (index == 0) {
        (void)tri_abort_raise(chain->first.state, TRIB_ERR_CLOSED, "the first");
        return;
    }
    while (tri_abort_live(chain->first.state))
        continue;
    tri_abort_await_told(chain->first.state);
    (void)tri_abort_raise(chain->second.state, TRIB_ERR_ABORTED, "too late");
    CHECK(tri_abort_lost(chain->second.state, NULL, 0) == 1);
    CHECK_STATUS(tri_abort_status(chain->second.state), TRIB_ERR_CLOSED);
}

static void told(void)
{
    struct chain chain;
    check_begin("another thread finds a state stopped");
    create(&chain.first);
    create(&chain.second);
    chain.observer = (struct tri_abort_observer){.raised = stop_second, .context = &chain};
    tri_abort_observe(chain.first.state, &chain.observer);
    check_ranks(2, raise_or_follow, &chain);
    tri_abort_unobserve(chain.first.state, &chain.observer);
    tri_abort_detach(chain.first.state);
    tri_abort_detach(chain.second.state);
    tri_abort_release(chain.first.state);
    tri_abort_release(chain.second.state);
    check_end();
}

/* Those that hold the state, and how long at most. */
static void held(void)
{
    struct hook hook;
    check_begin("a state that is held");
    create(&hook);
    CHECK(tri_abort_may_interrupt(hook.state));
    tri_abort_hold(hook.state);
    tri_abort_hold(hook.state);
    (void)tri_abort_raise(hook.state, TRIB_ERR_ABORTED, "held by two");
    /* What stops this process does not wait. */
    CHECK(hook.calls == 1 && hook.flag == TRI_STOPPED_HERE);
    CHECK(!tri_abort_may_interrupt(hook.state));
    tri_abort_let_go(hook.state);
    CHECK(!tri_abort_may_interrupt(hook.state));
    tri_abort_let_go(hook.state);
    CHECK(tri_abort_may_interrupt(hook.state) && hook.flag == TRI_STOPPED_HERE);
    tri_abort_release_streams(hook.state);
    CHECK(hook.flag == TRI_STOPPED);
    tri_abort_detach(hook.state);
    tri_abort_release(hook.state);
    create(&hook);
    tri_abort_hold(hook.state);
    CHECK(tri_abort_may_interrupt(hook.state)); /* nothing has stopped: it is given up */
    const double start = check_now_ms();
    tri_abort_release_streams(hook.state); /* in vain: it is live */
    CHECK(hook.flag == 0);
    (void)tri_abort_raise(hook.state, TRIB_ERR_ABORTED, "for good");
    while (!tri_abort_may_interrupt(hook.state) && check_now_ms() < start + 100 * TRI_HELD_MS)
        check_sleep_ms(1);
    const double ms = check_now_ms() - start;
    CHECK_MSG(ms >= TRI_HELD_MS && ms < 100 * TRI_HELD_MS, "%.1f ms", ms);
    CHECK(hook.flag == TRI_STOPPED_HERE);
    tri_abort_detach(hook.state);
    CHECK(hook.flag == TRI_STOPPED);
    tri_abort_release(hook.state);
    check_end();
}

int main(void)
{
    held();
    told();
    one_raise_counts();
    detached();
    many_lost();
    observers();
    leavers();
    flag_lifetime();
    asked();
    in_flight();
    states();
    reclaimed_alive();
    parts();
    in_turn();
    kept_meanwhile();
    crowds();
    return check_finish("abort_test");
}
