/* A team: all ranks of one communicator, or one of them, each with a device and a stream. */
#include "tests/team.h"

#include <stdlib.h>
#include <string.h>

enum { GUARD = 256, SHIFT_MAX = 16 };

int team_limit(const char *backend)
{
    int32_t devices = 0;
    if (trib_backend_devices(&devices, backend) != TRIB_OK)
        return 0;
    return devices < TEAM_MAX ? devices : TEAM_MAX;
}

bool team_has(const struct team *team, int rank)
{
    return !team->apart || rank == team->own;
}

void team_ranks(const struct team *team, void (*body)(int rank, int size, void *argument),
                void *argument)
{
    if (team->apart)
        body(team->own, team->size, argument);
    else
        check_ranks(team->size, body, argument);
}

static bool prepare_rank(struct team *team, int rank, int32_t ordinal)
{
    return CHECK_OK(trib_device_get(&team->devices[rank], team->backend, ordinal)) &&
           CHECK_OK(trib_stream_create(&team->streams[rank], team->devices[rank]));
}

bool team_prepare(struct team *team, const char *backend, int size)
{
    bool good = true;
    memset(team, 0, sizeof *team);
    team->backend = backend;
    team->size = size;
    for (int rank = 0; rank < size && good; rank++)
        good = prepare_rank(team, rank, rank);
    return good;
}

struct opening {
    struct team *team;
    trib_id id;
    const trib_options *options;
};

static void open_rank(int rank, int size, void *argument)
{
    struct opening *opening = argument;
    CHECK_OK(trib_comm_create(&opening->team->comms[rank], &opening->id, rank, size, rank,
                              opening->options));
}

static bool all_open(const struct team *team)
{
    for (int rank = 0; rank < team->size; rank++)
        if (team->comms[rank] == NULL)
            return false;
    return true;
}

bool team_open(struct team *team, const trib_options *options)
{
    struct opening opening = {.team = team, .options = options};
    if (!CHECK_OK(trib_id_create(&opening.id, team->backend)))
        return false;
    check_ranks(team->size, open_rank, &opening);
    return all_open(team);
}

bool team_split_group(struct team *team, const trib_options *options)
{
    trib_options named = TRIB_OPTIONS_INIT;
    trib_group *group = NULL;
    if (options != NULL)
        named = *options;
    named.backend = team->backend;
    if (!CHECK_OK(trib_group_create(&group, NULL, team->size, &named)))
        return false;
    if (CHECK_OK(trib_group_split(team->comms, group)))
        return all_open(team);
    trib_group_destroy(group);
    return false;
}

bool team_create(struct team *team, const char *backend, int size, const trib_options *options)
{
    return team_prepare(team, backend, size) && team_open(team, options);
}

bool team_create_apart(struct team *team, const char *backend, const trib_id *id, int own, int size,
                       int32_t ordinal)
{
    memset(team, 0, sizeof *team);
    team->backend = backend;
    team->size = size;
    team->apart = true;
    team->own = own;
    return prepare_rank(team, own, ordinal) &&
           CHECK_OK(trib_comm_create(&team->comms[own], id, own, size, ordinal, NULL));
}

static void close_rank(int rank, int size, void *argument)
{
    struct team *team = argument;
    (void)size;
    CHECK_OK(trib_comm_destroy(team->comms[rank]));
    team->comms[rank] = NULL;
}

void team_close(struct team *team)
{
    team_ranks(team, close_rank, team);
}

void team_destroy(struct team *team)
{
    team_close(team);
    for (int rank = 0; rank < team->size; rank++)
        if (team_has(team, rank))
            CHECK_OK(trib_stream_destroy(team->devices[rank], team->streams[rank]));
}

bool team_wait(const struct team *team, int rank, int ms)
{
    const double end = check_now_ms() + ms;
    for (;;) {
        int32_t done = 0;
        if (!CHECK_OK(trib_stream_query(&done, team->devices[rank], team->streams[rank])))
            return false;
        if (done)
            return CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
        if (check_now_ms() > end)
            return CHECK_MSG(false, "the stream of rank %d is not done after %d ms", rank, ms);
        check_sleep_ms(1);
    }
}

bool team_go_on(const struct team *team, int rank, bool good)
{
    trib_abort *handle = NULL;
    if (good)
        return true;
    if (trib_comm_abort_handle(&handle, team->comms[rank]) == TRIB_OK)
        trib_abort_raise(handle, "a test failed on one rank");
    trib_abort_release(handle);
    return false;
}

bool team_finish(const struct team *team, int rank, int ms)
{
    return team_go_on(team, rank,
                      team_wait(team, rank, ms) && CHECK_OK(trib_comm_status(team->comms[rank])));
}

bool team_usable(const struct team *team)
{
    bool usable = true;
    for (int rank = 0; rank < team->size; rank++)
        usable =
            usable && (!team_has(team, rank) || trib_comm_status(team->comms[rank]) == TRIB_OK);
    return usable;
}

void team_barrier(_Atomic int *arrived, int size)
{
    atomic_fetch_add(arrived, 1);
    while (atomic_load(arrived) < size)
        check_sleep_ms(1);
}

void team_stagger(int index, int round)
{
    for (volatile int spin = 0; spin < (index * 37 + round * 101) % 3000; spin++)
        continue;
}

void team_hold(void *released)
{
    while (!atomic_load((_Atomic bool *)released))
        check_sleep_ms(1);
}

void team_rest(void *ms)
{
    check_sleep_ms(*(const int *)ms);
}

/* ----------------------------------------------------------------------------- guarded memory */

size_t guarded_room(size_t capacity)
{
    return capacity + 2 * GUARD + SHIFT_MAX;
}

void guarded_over(struct guarded *buffer, trib_device *device, void *memory, size_t capacity)
{
    const size_t room = guarded_room(capacity);
    memset(buffer, 0, sizeof *buffer);
    buffer->device = device;
    buffer->memory = memory;
    buffer->capacity = capacity;
    buffer->image = malloc(room);
    buffer->found = malloc(room);
    if (buffer->image == NULL || buffer->found == NULL)
        abort();
}

void guarded_leave(struct guarded *buffer)
{
    free(buffer->image);
    free(buffer->found);
}

bool guarded_create(struct guarded *buffer, trib_device *device, size_t capacity)
{
    void *memory = NULL;
    const bool good = CHECK_OK(trib_device_alloc(&memory, device, guarded_room(capacity)));
    guarded_over(buffer, device, memory, capacity);
    return good;
}

void guarded_destroy(struct guarded *buffer)
{
    CHECK_OK(trib_device_free(buffer->device, buffer->memory));
    guarded_leave(buffer);
}

void guarded_reset(struct guarded *buffer, size_t bytes, size_t shift)
{
    if (bytes > buffer->capacity || shift > SHIFT_MAX)
        abort();
    buffer->begin = GUARD + shift;
    buffer->used = buffer->begin + bytes + GUARD;
    /* Never zero, never the same twice in a row, and no small number in any type. */
    memset(buffer->image, 0xa5, buffer->used);
    for (size_t i = 0; i < buffer->used; i += 3)
        buffer->image[i] = (char)(0x5b + i % 64);
}

void *guarded_data(const struct guarded *buffer, size_t offset)
{
    return buffer->memory + buffer->begin + offset;
}

void *guarded_image(const struct guarded *buffer, size_t offset)
{
    return buffer->image + buffer->begin + offset;
}

void *guarded_found(const struct guarded *buffer, size_t offset)
{
    return buffer->found + buffer->begin + offset;
}

bool guarded_push(struct guarded *buffer, trib_stream stream)
{
    return CHECK_OK(
        trib_device_copy(buffer->device, buffer->memory, buffer->image, buffer->used, stream));
}

bool guarded_pull(struct guarded *buffer, trib_stream stream)
{
    return CHECK_OK(
        trib_device_copy(buffer->device, buffer->found, buffer->memory, buffer->used, stream));
}

bool guarded_same(const struct guarded *buffer, const char *file, int line, const char *what)
{
    if (memcmp(buffer->found, buffer->image, buffer->used) == 0)
        return true;
    size_t at = 0;
    while (buffer->found[at] == buffer->image[at])
        at++;
    return check_that(false, file, line,
                      "%s: byte %td of %zu is 0x%02x and should be 0x%02x (outside of the range: "
                      "a guard)",
                      what, (ptrdiff_t)at - (ptrdiff_t)buffer->begin,
                      buffer->used - buffer->begin - GUARD, (unsigned char)buffer->found[at],
                      (unsigned char)buffer->image[at]);
}
