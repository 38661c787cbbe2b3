/* A team: all ranks of one communicator, one thread each, with a device and a stream; or one of them,
 * where each has a process. And guarded memory for them, in which a write to the wrong place is seen.
 * The same code for every backend. */
#ifndef TRI_TESTS_TEAM_H
#define TRI_TESTS_TEAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "tests/check.h"

enum { TEAM_MAX = 64 };

struct team {
    const char *backend;
    int size;
    bool apart; /* this process has the rank `own` alone, and each other one has a process, too */
    int own;
    trib_device *devices[TEAM_MAX];
    trib_stream streams[TEAM_MAX];
    trib_comm *comms[TEAM_MAX]; /* after team_open */
};

/* How many ranks `backend` can have here: 0 if the build does not have it. */
int team_limit(const char *backend);

/* Devices 0 .. size-1 and a stream on each; no communicators yet. */
bool team_prepare(struct team *team, const char *backend, int size);
/* Communicators, through an id (NULL: no options) or through a group. */
bool team_open(struct team *team, const trib_options *options);
bool team_split_group(struct team *team, const trib_options *options);
/* Both of the first. */
bool team_create(struct team *team, const char *backend, int size, const trib_options *options);
/* The rank `own` of a team apart, on the device `ordinal`: all `size` processes pass the same id. */
bool team_create_apart(struct team *team, const char *backend, const trib_id *id, int own, int size,
                       int32_t ordinal);
/* Destroy the communicators, one thread each. */
void team_close(struct team *team);
/* team_close, and the streams. Devices live for ever. */
void team_destroy(struct team *team);

/* Has this process that rank? */
bool team_has(const struct team *team, int rank);
/* check_ranks, of the ranks that this process has. */
void team_ranks(const struct team *team, void (*body)(int rank, int size, void *argument),
                void *argument);

/* Wait for stream `rank`, but not for ever: false if it is not done after `ms`. */
bool team_wait(const struct team *team, int rank, int ms);

/* Where a rank has failed alone, and the others, or its own stream, may wait for ever: if not `good`, abort the
 * communicator of all ranks, so that everything that is queued ends. By the thread that has rank `rank`. Returns
 * `good`. */
bool team_go_on(const struct team *team, int rank, bool good);
/* team_wait, and are results valid? If not, the communicator is aborted: what comes next may wait for the device,
 * and finds it free. */
bool team_finish(const struct team *team, int rank, int ms);
/* Are the communicators of all ranks usable? Where no thread has one of them. */
bool team_usable(const struct team *team);

/* A barrier of `size` threads, for tests whose ranks must be at one point at once. `arrived` begins
 * at 0 and serves once. */
void team_barrier(_Atomic int *arrived, int size);

/* Spin for a time that differs between threads and rounds, so that what follows races. */
void team_stagger(int index, int round);

/* For trib_stream_submit: what is behind them on the stream waits until the
 * `_Atomic bool` at `released` is true, or for the `int` at `ms`. */
void team_hold(void *released);
void team_rest(void *ms);

/* `size` bytes of device memory between two guards, with an image of all of it on the host: what
 * should be there. */
struct guarded {
    trib_device *device;
    char *memory; /* device */
    char *image;  /* host: what was put there, then what should be there */
    char *found;  /* host: what is there */
    size_t capacity, begin, used;
};

bool guarded_create(struct guarded *buffer, trib_device *device, size_t capacity);
void guarded_destroy(struct guarded *buffer);
/* The same over memory of the caller's, of guarded_room() bytes, which he frees afterwards. */
size_t guarded_room(size_t capacity);
void guarded_over(struct guarded *buffer, trib_device *device, void *memory, size_t capacity);
void guarded_leave(struct guarded *buffer);
/* Poison in the image: `bytes` of payload, `shift` bytes (0 .. 16) beyond a 256-byte boundary. */
void guarded_reset(struct guarded *buffer, size_t bytes, size_t shift);
/* Byte `offset` of the payload on the device and in the image. */
void *guarded_data(const struct guarded *buffer, size_t offset);
void *guarded_image(const struct guarded *buffer, size_t offset);
void *guarded_found(const struct guarded *buffer, size_t offset);
/* Queue the copies from image to device, and from device to found. */
bool guarded_push(struct guarded *buffer, trib_stream stream);
bool guarded_pull(struct guarded *buffer, trib_stream stream);
/* After the stream has been waited for: is what was found the image, guards included? */
bool guarded_same(const struct guarded *buffer, const char *file, int line, const char *what);

#endif
