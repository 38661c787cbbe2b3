/* The state that all ranks of one communicator in this process share: live, or why not any more.
 *
 * It is the public abort handle. It is reference counted, so it may outlive the communicator. It
 * counts the calls in flight: an aborter frees what calls use only once that count is 0. */
#ifndef TRI_BASE_ABORT_H
#define TRI_BASE_ABORT_H

#include <stdbool.h>
#include <stdint.h>

#include "csrc/base/status.h"

/* struct trib_abort is the public handle type; its fields are private to abort.c. */

/* What a backend does when its communicator stops. Called at most once, on the thread that stops
 * it, after the state and the flag are set. Must not wait, must not call back into this object's
 * raise. Is never running, nor will it run, once tri_abort_detach has returned. */
typedef void (*tri_abort_hook)(void *context);

/* Has the backend's library found an error since? TRIB_OK, or its status with the detail set. Any
 * thread; never waits, and must not call back into this object. Like the hook, it is not running,
 * nor will it, once tri_abort_detach has returned. */
typedef trib_status (*tri_abort_poll)(void *context);

/* A live state with one reference. `flag` is memory that the device can read too; it holds 0 and
 * becomes 1 when the communicator stops, before the hook runs. It must outlive tri_abort_detach
 * (but see tri_abort_own_flag). NULL when memory is short. */
struct trib_abort *tri_abort_create(uint32_t *flag, tri_abort_hook hook, void *context);

/* With the hook's context. Before anybody else knows the state. */
void tri_abort_set_poll(struct trib_abort *state, tri_abort_poll poll);

/* The flag goes with the last reference, by `give`. So what lets kernels read it keeps a reference
 * until they have ended. Before anybody else knows the state. */
void tri_abort_own_flag(struct trib_abort *state, void (*give)(void *flag));
/* But not if there is something that nobody will know the end of: then it stays for ever. */
void tri_abort_keep_flag(struct trib_abort *state);

struct trib_abort *tri_abort_retain(struct trib_abort *state); /* returns its argument */
void tri_abort_release(struct trib_abort *state);              /* NULL allowed */

/* The backend's memory is about to go: forget the flag, the hooks and their context. Waits for one
 * that is running. Idempotent. */
void tri_abort_detach(struct trib_abort *state);

/* Stop: the first caller's status and detail stay. Returns true for the first. Any thread. */
bool tri_abort_raise(struct trib_abort *state, trib_status status, const char *detail);

/* One atomic load. Any thread. */
bool tri_abort_live(const struct trib_abort *state);

/* TRIB_OK while live; afterwards the first status, with this thread's detail set to its words. */
trib_status tri_abort_status(const struct trib_abort *state);

/* tri_abort_status, after asking the backend's library; an error that it found stops the
 * communicator. Any thread. */
trib_status tri_abort_ask(struct trib_abort *state);

/* The in-flight count. register returns true if the state is live; the same thread must then
 * unregister. tri_abort_in_flight counts the threads between the two. Once raise has returned,
 * register returns false. */
bool tri_abort_register(struct trib_abort *state);
void tri_abort_unregister(struct trib_abort *state);
uint32_t tri_abort_in_flight(const struct trib_abort *state);

#endif
