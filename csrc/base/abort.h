/* The state that all ranks of one communicator in this process share: live, or why it stopped.
 *
 * It is the public abort handle. It is reference counted, so it may outlive the communicator. It
 * counts the calls in flight: an aborter frees what calls use only once that count is 0. */
#ifndef TRI_BASE_ABORT_H
#define TRI_BASE_ABORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/base/status.h"

/* Work queued earlier holds up freeing: a reason to be parked only after this time. */
enum { TRI_PARKED_AFTER_MS = 1000 };

/* struct trib_abort is the public handle type; its fields are private to abort.c. */

/* A backend's reaction when its communicator stops. Runs at most once, on the thread that stops it,
 * after the state and the flag are set. It must not wait, and must not call raise. Once
 * tri_abort_detach has returned, it neither runs nor will run. */
typedef void (*tri_abort_hook)(void *context);

/* Returns an asynchronous error of the backend's library with the detail set, or TRIB_OK. Any
 * thread; never waits, and must not call back into this object. Once tri_abort_detach has returned,
 * it neither runs nor will run. */
typedef trib_status (*tri_abort_poll)(void *context);

/* A backend's part of tri_abort_state, for a communicator that was aborted. Any thread, one at a
 * time; they never wait, and must not call back into this object. Once tri_abort_detach has
 * returned, they neither run nor will run. */
struct tri_abort_ending {
    /* No call is in flight. Has the backend interrupted every collective in which a stream waits?
     * Asked until it says yes. If not, `text` may receive what that waits for. */
    bool (*interrupted)(void *context, char *text, size_t bytes);
    /* Does freeing wait for something outside the library? Then `text` receives for what. */
    bool (*parked)(void *context, char *text, size_t bytes);
};

/* Create a live state with one reference; NULL if memory is short. The device reads `flag` too: it
 * is 0, and says that the communicator has stopped (base/stopped.h) before the hook runs. It must outlive
 * tri_abort_detach (but see tri_abort_own_flag). */
struct trib_abort *tri_abort_create(uint32_t *flag, tri_abort_hook hook, void *context);

/* `poll` gets the hook's context. Call this before any other thread has the state. */
void tri_abort_set_poll(struct trib_abort *state, tri_abort_poll poll);

/* As tri_abort_set_poll. `ending` lives for ever. */
void tri_abort_set_ending(struct trib_abort *state, const struct tri_abort_ending *ending);

/* The last release calls `give` with the flag. So code whose kernels read the flag holds a
 * reference until they have ended. Call this before any other thread has the state. */
void tri_abort_own_flag(struct trib_abort *state, void (*give)(void *flag));
/* Keep the flag for ever, and those of the state's parts, because a kernel whose end is unknown reads
 * them. */
void tri_abort_keep_flag(struct trib_abort *state);

struct trib_abort *tri_abort_retain(struct trib_abort *state); /* returns its argument */
void tri_abort_release(struct trib_abort *state);              /* NULL allowed */

/* Forget the flag, the hooks and their context, because the backend frees its memory next. Waits
 * for a hook that is running. Idempotent. */
void tri_abort_detach(struct trib_abort *state);

/* Stop the communicator. The first caller's status and detail stay; only the first gets true. Any
 * thread. */
bool tri_abort_raise(struct trib_abort *state, trib_status status, const char *detail);

/* The same; `n` ranks at `lost` were found missing. At most TRI_LOST_MAX of them are kept. */
enum { TRI_LOST_MAX = 64 };
bool tri_abort_raise_lost(struct trib_abort *state, trib_status status, const char *detail,
                          const int32_t *lost, int32_t n);
/* The same, because another process has told that it stopped. */
bool tri_abort_raise_relayed(struct trib_abort *state, trib_status status, const char *detail,
                             const int32_t *lost, int32_t n);
/* How many those are (0 while live); the first `capacity` go to `out`. Any thread. */
int32_t tri_abort_lost(const struct trib_abort *state, int32_t *out, int32_t capacity);

/* Somebody else who wants to know that the communicator stops; the caller owns the memory. `raised`
 * is called once, after the hook and under its rules, or by observe if it has stopped already; by
 * unobserve, and before the hook, if it has just stopped. Once tri_abort_unobserve has returned, it
 * neither runs nor will run. Unlike a hook it may raise another state, one of whose observers raises
 * this one in turn: a raise takes a state's lock only if it has stopped that state, and whoever holds
 * the lock of a live state raises nothing meanwhile, and takes no other state's; so nobody waits for each
 * other. */
struct tri_abort_observer {
    void (*raised)(void *context, bool relayed);
    void *context;
    struct tri_abort_observer *next; /* abort.c's */
};
void tri_abort_observe(struct trib_abort *state, struct tri_abort_observer *observer);
void tri_abort_unobserve(struct trib_abort *state, struct tri_abort_observer *observer);

/* Of a state that has stopped: wait until its hook and its observers have been called, so that what they stop has
 * stopped, too, with the ranks that were lost. Not from one of them; a few microseconds. */
void tri_abort_await_told(const struct trib_abort *state);

/* From now on the end of `part` belongs to the end of `state`, which keeps a reference: tri_abort_state
 * says no more of `state` than of both, and tri_abort_ask asks both. Whoever calls this has them stop
 * together. Idempotent; false: no memory. `part` has no parts of its own. */
bool tri_abort_add_part(struct trib_abort *state, struct trib_abort *part);

/* Where the ranks that share this state meet when it has stopped; lives as long as the state. */
struct tri_meeting *tri_abort_meeting(struct trib_abort *state);

/* Somebody who tells other processes of the end and does not know yet that they have stopped, too. What a
 * backend interrupts may hand on, to a rank elsewhere, data that is no result, and nothing but that rank's
 * own flag keeps it from applying it. So a backend interrupts no collective before tri_abort_may_interrupt
 * says so: when nobody holds, or TRI_HELD_MS after the hook and all observers have been called, for a process
 * that does not run answers nothing. Counted; any thread; they never wait. */
enum { TRI_HELD_MS = 100 };
void tri_abort_hold(struct trib_abort *state);
void tri_abort_let_go(struct trib_abort *state);
/* Also of a live one, which is given up. */
bool tri_abort_may_interrupt(const struct trib_abort *state);
/* It may: the flag says so, too. */
void tri_abort_release_streams(struct trib_abort *state);

/* No deadline of a call ends the communicator before `until_ns` (tri_now_ns); an earlier time than a
 * former one's changes nothing. Any thread. */
void tri_abort_defer(struct trib_abort *state, uint64_t until_ns);
uint64_t tri_abort_deferred(const struct trib_abort *state); /* 0: never deferred */

/* One atomic load. Any thread. */
bool tri_abort_live(const struct trib_abort *state);

/* TRIB_OK while live; afterwards the first status, and this thread's detail becomes the first
 * one's. */
trib_status tri_abort_status(const struct trib_abort *state);

/* The same, but this thread's detail stays; `*out` becomes the first one's detail, which lives as
 * long as the state, or stays. */
trib_status tri_abort_why(const struct trib_abort *state, const char **out);

/* tri_abort_status, after asking the backend's library about the communicator and its parts; an error
 * that it found stops the communicator. Any thread. */
trib_status tri_abort_ask(struct trib_abort *state);

/* The backend has released everything, after an abort or a close. */
void tri_abort_reclaimed(struct trib_abort *state);

/* How far the end has come; `text` (`bytes` may be 0) as in trib_abort_state. Any thread; waits at
 * most for a hook that is running. */
trib_comm_state tri_abort_state(struct trib_abort *state, char *text, size_t bytes);

/* The in-flight count. register returns true if the state is live; the same thread must then
 * unregister. tri_abort_in_flight counts the threads between the two. Once raise has returned,
 * register returns false. */
bool tri_abort_register(struct trib_abort *state);
void tri_abort_unregister(struct trib_abort *state);
uint32_t tri_abort_in_flight(const struct trib_abort *state);

#endif
