/* Counts calls of one rank, and injects the fault at the n-th. */
#include "tests/injection/injection.h"

#include <stdatomic.h>
#include <stddef.h>

#include "csrc/base/status.h"
#include "tests/check.h"

enum { DELAY_MS = 2 };

static struct injection_fault plan; /* changes only while no thread has entered */
static _Atomic long seen;
static _Atomic(const struct injection_place *) fired;
static _Atomic(const trib_abort *) raised;

static _Thread_local struct injection_context self = {.rank = -1};
static _Thread_local const void *polled; /* the object of this thread's last question */

const char *injection_mode_name(enum injection_mode mode)
{
    static const char *const names[INJECT_MODES] = {"nothing", "failure",   "delay",
                                                    "abort",   "no memory", "no thread"};
    return names[mode];
}

void injection_arm(const struct injection_fault *fault)
{
    plan = *fault;
    atomic_store(&seen, 0);
    atomic_store(&fired, NULL);
    atomic_store(&raised, NULL);
}

void injection_disarm(void)
{
    plan.mode = INJECT_NOTHING;
}

const struct injection_place *injection_fired(void)
{
    return atomic_load(&fired);
}

const trib_abort *injection_raised(void)
{
    return atomic_load(&raised);
}

void injection_enter(int rank, trib_abort *target)
{
    self = (struct injection_context){.rank = rank, .target = target};
}

void injection_target(trib_abort *target)
{
    self.target = target;
}

void injection_leave(void)
{
    self = (struct injection_context){.rank = -1};
}

struct injection_context injection_context(void)
{
    return self;
}

void injection_resume(struct injection_context context)
{
    self = context;
}

/* A thread that has not entered reads no plan: another one may be arming it. */
static enum injection_mode mode_here(void)
{
    return self.rank < 0 ? INJECT_NOTHING : plan.mode;
}

/* Is this call the one? */
static bool is_due(const struct injection_place *place)
{
    polled = NULL;
    if (self.rank != plan.rank || atomic_fetch_add(&seen, 1) + 1 != plan.n)
        return false;
    atomic_store(&fired, place);
    return true;
}

trib_status injection_reach(const struct injection_place *place)
{
    switch (mode_here()) {
    case INJECT_FAILURE:
        if (place->status != TRIB_OK && is_due(place))
            return tri_fail(place->status, "injected failure of %s", place->name);
        return TRIB_OK;
    case INJECT_DELAY:
        if (is_due(place))
            check_sleep_ms(DELAY_MS);
        return TRIB_OK;
    case INJECT_ABORT:
        if (is_due(place) && self.target != NULL) {
            CHECK_OK(trib_abort_raise(self.target, "injected abort"));
            atomic_store(&raised, self.target);
        }
        return TRIB_OK;
    default:
        return TRIB_OK;
    }
}

trib_status injection_poll(const struct injection_place *place, const void *object)
{
    if (polled == object)
        return TRIB_OK;
    const trib_status status = injection_reach(place);
    polled = object;
    return status;
}

bool injection_fails(enum injection_mode mode, const struct injection_place *place)
{
    return mode_here() == mode && is_due(place);
}
