/* A communicator over one that the caller keeps. */
#include "csrc/core/adopt.h"

#include "csrc/base/clock.h"
#include "csrc/base/random.h"
#include "csrc/core/device.h"
#include "csrc/core/lifecycle.h"
#include "csrc/core/match.h"
#include "csrc/core/operation.h"

/* The backend of the options, or the first one that can. */
static trib_status choose(const struct tri_backend **out, const struct tri_backend *wanted)
{
    for (size_t i = 0; wanted == NULL && tri_backends[i] != NULL; i++)
        if (tri_backends[i]->transport->adopt != NULL)
            wanted = tri_backends[i];
    *out = wanted;
    if (wanted != NULL && wanted->transport->adopt != NULL)
        return TRIB_OK;
    return tri_fail(TRIB_ERR_UNSUPPORTED,
                    "trib_comm_adopt: %s%s%s; expected \"nccl\": only an ncclComm_t can be adopted",
                    wanted == NULL ? "this build has no backend that adopts"
                                   : "options.backend is \"",
                    wanted == NULL ? "" : wanted->name, wanted == NULL ? "" : "\"");
}

/* Rank 0's is everybody's. */
static trib_status make_id(trib_id *out, int32_t rank)
{
    *out = (trib_id){{0}};
    return rank == 0 ? tri_random(out->bytes, sizeof out->bytes) : TRIB_OK;
}

trib_status tri_comm_adopt(struct trib_comm **out, void *handle, const trib_options *options)
{
    struct tri_settings settings;
    const struct tri_backend *backend = NULL;
    struct tri_adoptee of;
    struct trib_comm *comm = NULL;
    struct tri_transport *transport = NULL;
    trib_id id;
    TRI_TRY(tri_settings_read(&settings, "trib_comm_adopt", options));
    /* There is no symmetric memory. */
    settings.config.windows = settings.config.unabortable = false;
    TRI_TRY(choose(&backend, settings.backend));
    TRI_TRY(backend->transport->inspect(&of, handle));
    TRI_TRY(tri_backend_has(backend, of.device));
    TRI_TRY(make_id(&id, of.rank));
    TRI_TRY(tri_comm_prepare(&comm, backend, of.device, of.size, &settings));
    const uint64_t deadline_ns = tri_deadline_ns(settings.timeout_ms);
    const trib_status status =
        backend->transport->adopt(&transport, &id, &of, &comm->config, settings.timeout_ms);
    if (status != TRIB_OK) {
        tri_comm_discard(comm);
        return status;
    }
    comm->adopted = true;
    tri_comm_attach(comm, transport, tri_digest(0, &id, sizeof id));
    comm->id = id;
    TRI_TRY(tri_comm_introduce(comm, TRI_ADOPT, deadline_ns));
    *out = comm;
    return TRIB_OK;
}
