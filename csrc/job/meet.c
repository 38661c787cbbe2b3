/* The ranks of a job meet, and become a communicator. */
#define _GNU_SOURCE
#include "csrc/job/meet.h"

#include <string.h>

#include "csrc/base/bytes.h"
#include "csrc/base/clock.h"
#include "csrc/core/device.h"
#include "csrc/core/lifecycle.h"
#include "csrc/job/ask.h"
#include "csrc/job/launcher.h"
#include "csrc/job/offer.h"
#include "csrc/job/place.h"
#include "csrc/peers/service.h"

enum { DEFAULT_TIMEOUT_MS = 300000, PUBLIC = 24 };

static trib_status check_size(const char *function, uint32_t size)
{
    if (size == sizeof(trib_job))
        return TRIB_OK;
    return tri_fail(
        TRIB_ERR_INVALID_ARGUMENT,
        "%s: the size of the trib_job is %u, expected %zu: start from TRIB_JOB_INIT, and "
        "build with the header of the library that is loaded",
        function, size, sizeof(trib_job));
}

trib_status tri_job_read(trib_job *out)
{
    TRI_TRY(check_size("trib_job_read", out->size));
    return tri_job_parse(out, &tri_variables_own);
}

/* ---------------------------------------------------------------------------------------- meeting */

static trib_status bad_field(const char *name, long long found, long long least, long long most)
{
    return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                    "trib_job_meet: job.%s is %lld; expected %lld to %lld", name, found, least,
                    most);
}

/* NULL: there is none. */
static const char *own_secret(void)
{
    return tri_variables_own.get(tri_variables_own.context, "TRIBUTARY_SECRET");
}

/* A secret that got lost on its way to the variable would let everybody in, on all ranks alike. */
static trib_status check_secret(void)
{
    const char *secret = own_secret();
    if (secret == NULL || secret[0] != '\0')
        return TRIB_OK;
    return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                    "trib_job_meet: the variable TRIBUTARY_SECRET is set, and empty; expected a "
                    "secret that nobody can guess, or unset it on all ranks");
}

static trib_status check(const trib_job *job)
{
    TRI_TRY(check_size("trib_job_meet", job->size));
    if (job->n_ranks < 1 || job->n_ranks > TRIB_JOB_RANKS_MAX)
        return bad_field("n_ranks", job->n_ranks, 1, TRIB_JOB_RANKS_MAX);
    if (job->rank < 0 || job->rank >= job->n_ranks)
        return bad_field("rank", job->rank, 0, job->n_ranks - 1);
    if (job->port < 0 || job->port > UINT16_MAX)
        return bad_field("port", job->port, 0, UINT16_MAX);
    if (job->reserved != 0)
        return bad_field("reserved", job->reserved, 0, 0);
    if (job->n_ranks > 1 && !tri_place_host_valid(job->host))
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "trib_job_meet: job.host is no name and no address; %d ranks need one of "
                        "rank 0's",
                        job->n_ranks);
    return job->n_ranks > 1 ? check_secret() : TRIB_OK;
}

/* What only the ranks of the job know, as far as it has a secret. How many they are, the handshake
 * adds (proof.h). */
static void make_key(uint8_t key[TRI_MAC_KEY], const trib_job *job)
{
    const char *secret = own_secret();
    uint8_t public[PUBLIC] = "tributary job";
    struct tri_mac mac;
    tri_store_le(public + PUBLIC - 8, job->token, 8);
    tri_mac_begin(&mac, TRI_MAC_KEY, NULL, 0);
    tri_mac_add(&mac, public, sizeof public);
    if (secret != NULL)
        tri_mac_add(&mac, secret, strlen(secret));
    tri_mac_end(&mac, key);
    explicit_bzero(&mac, sizeof mac);
}

static trib_status meet_others(trib_id *out, const trib_job *job, uint32_t timeout_ms)
{
    struct tri_terms terms = {.job = job, .timeout_ms = timeout_ms};
    terms.deadline_ns = tri_deadline_ns(timeout_ms);
    TRI_TRY(tri_service_retain());
    make_key(terms.key, job);
    const trib_status status = job->rank == 0 ? tri_offer(out, &terms) : tri_ask(out, &terms);
    explicit_bzero(terms.key, sizeof terms.key);
    tri_service_release();
    return status;
}

trib_status tri_job_meet(trib_id *out, const trib_job *job, const char *backend,
                         uint32_t timeout_ms)
{
    trib_id id = {{0}};
    TRI_TRY(check(job));
    if (job->rank == 0)
        TRI_TRY(tri_id_create(&id, backend));
    if (job->n_ranks > 1)
        TRI_TRY(meet_others(&id, job, timeout_ms == 0 ? DEFAULT_TIMEOUT_MS : timeout_ms));
    *out = id;
    return TRIB_OK;
}

/* ----------------------------------------------------------------------------------- communicators */

/* Before the ranks meet: once all have come, a rank without a device leaves the others waiting. */
static trib_status check_device(const struct tri_backend *backend, int32_t device,
                                const trib_job *job)
{
    const int32_t count = backend->device->count();
    if (count < 2 || device < count)
        return tri_backend_has(backend, device);
    return tri_fail(
        TRIB_ERR_NO_DEVICE,
        "trib_comm_from_env: rank %d of %d has local rank %d, and \"%s\" has %d devices "
        "for it, numbered from 0; start as many processes on a host as it has devices, "
        "or show each process its own alone (CUDA_VISIBLE_DEVICES)",
        job->rank, job->n_ranks, job->local_rank, backend->name, count);
}

/* The backend and the device of this rank. */
static trib_status choose(const struct tri_backend **out, int32_t *out_device, const trib_job *job,
                          const struct tri_settings *settings)
{
    *out = settings->backend;
    if (*out == NULL)
        TRI_TRY(tri_backend_with(out, 0));
    *out_device = (*out)->device->count() == 1 ? 0 : job->local_rank;
    if (job->n_ranks == 1 || ((*out)->capabilities() & TRIB_CAN_PROCESSES) != 0)
        return check_device(*out, *out_device, job);
    return tri_fail(TRIB_ERR_UNSUPPORTED,
                    "trib_comm_from_env: the job has %d ranks, each a process, and on %s all ranks "
                    "of a communicator are threads of one process; start one process and create a "
                    "group in it, or use nccl",
                    job->n_ranks, (*out)->name);
}

trib_status tri_comm_from_env(trib_comm **out, const trib_options *options)
{
    const struct tri_backend *backend = NULL;
    struct tri_settings settings;
    trib_job job = TRIB_JOB_INIT;
    trib_id id;
    int32_t device;
    TRI_TRY(tri_settings_read(&settings, "trib_comm_from_env", options));
    TRI_TRY(tri_job_read(&job));
    TRI_TRY(choose(&backend, &device, &job, &settings));
    TRI_TRY(tri_job_meet(&id, &job, backend->name, settings.timeout_ms));
    return tri_comm_create(out, &id, job.rank, job.n_ranks, device, options);
}
