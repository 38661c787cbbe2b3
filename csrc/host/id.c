/* Ids of the host backend: each is valid in this process, for one communicator. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/host/id.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "csrc/base/status.h"
#include "csrc/host/ops.h"

/* The first bytes of an id; the rest are 0. `number` counts the ids of this process, so one bit for
 * each of the last ID_WINDOW ids records which are used. Older ids count as used. */
struct id_fields {
    char magic[8];
    uint64_t process;
    uint64_t number;
};

enum { ID_WINDOW = 1 << 16 };

static const char magic[8] = {'T', 'R', 'I', 'B', 'H', 'O', 'S', 'T'};

/* Guards the three below. Held for a few instructions. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t process; /* distinguishes this process; 0 before the first id */
static uint64_t ids_created;
static uint8_t used[ID_WINDOW / 8];

static uint64_t make_process_tag(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return (time ^ (uint64_t)getpid() << 40 ^ (uint64_t)(uintptr_t)&lock) | 1;
}

static struct id_fields read_fields(const trib_id *id)
{
    struct id_fields fields;
    memcpy(&fields, id->bytes, sizeof fields);
    return fields;
}

static uint8_t *byte_of(const struct id_fields *fields)
{
    return &used[fields->number % ID_WINDOW / 8];
}

static uint8_t bit_of(const struct id_fields *fields)
{
    return (uint8_t)(1u << fields->number % 8);
}

trib_status tri_host_id_create(trib_id *out)
{
    struct id_fields fields;
    memset(out, 0, sizeof *out);
    memcpy(fields.magic, magic, sizeof magic);
    pthread_mutex_lock(&lock);
    if (process == 0)
        process = make_process_tag();
    fields.process = process;
    fields.number = ids_created++;
    *byte_of(&fields) &= (uint8_t)~bit_of(&fields);
    pthread_mutex_unlock(&lock);
    memcpy(out->bytes, &fields, sizeof fields);
    return TRIB_OK;
}

bool tri_host_id_is_mine(const trib_id *id)
{
    return memcmp(id->bytes, magic, sizeof magic) == 0;
}

trib_status tri_host_id_check(const trib_id *id)
{
    const struct id_fields fields = read_fields(id);
    for (size_t i = sizeof fields; i < sizeof id->bytes; i++)
        if (id->bytes[i] != 0)
            return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                            "comm_create: byte %zu of the id has changed; pass the 128 bytes of "
                            "trib_id_create unchanged",
                            i);
    pthread_mutex_lock(&lock);
    const bool own = fields.process == process && fields.number < ids_created;
    const bool fresh = own && ids_created - fields.number <= ID_WINDOW &&
                       (*byte_of(&fields) & bit_of(&fields)) == 0;
    pthread_mutex_unlock(&lock);
    if (!own)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "comm_create: this process did not create the id; all ranks of the host "
                        "backend are threads of the process that did");
    if (!fresh)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "comm_create: the id is used already; create one with trib_id_create for "
                        "every communicator");
    return TRIB_OK;
}

void tri_host_id_consume(const trib_id *id)
{
    const struct id_fields fields = read_fields(id);
    pthread_mutex_lock(&lock);
    if (ids_created - fields.number <= ID_WINDOW)
        *byte_of(&fields) |= bit_of(&fields);
    pthread_mutex_unlock(&lock);
}
