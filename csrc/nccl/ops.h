/* The members of the backend's tables, by file. Their contracts are in csrc/backend.h. */
#ifndef TRI_NCCL_OPS_H
#define TRI_NCCL_OPS_H

#include "csrc/backend.h"

/* memory.c */
trib_status tri_nccl_alloc(int32_t device, void **out, size_t bytes);
trib_status tri_nccl_free(int32_t device, void *data);
void tri_nccl_free_later(int32_t device, void *data);
trib_status tri_nccl_copy(int32_t device, void *dst, const void *src, size_t bytes,
                          trib_stream stream);
trib_status tri_nccl_fetch(int32_t device, void *dst, const void *src, size_t bytes,
                           trib_stream stream);

/* check.c */
enum tri_fault tri_nccl_check_buffer(int32_t device, const void *data, size_t bytes, size_t *found);
enum tri_fault tri_nccl_check_stream(int32_t device, trib_stream stream, size_t *found);

/* stream.c */
trib_status tri_nccl_stream_create(int32_t device, trib_stream *out);
trib_status tri_nccl_stream_wait(int32_t device, trib_stream stream);
trib_status tri_nccl_stream_query(int32_t device, trib_stream stream, bool *out_done);
trib_status tri_nccl_stream_wait_event(int32_t device, trib_event event, trib_stream stream);
trib_status tri_nccl_stream_submit(int32_t device, void (*function)(void *), void *argument,
                                   trib_stream stream);
trib_status tri_nccl_stream_destroy(int32_t device, trib_stream stream);
trib_status tri_nccl_event_create(int32_t device, trib_event *out);
trib_status tri_nccl_event_record(int32_t device, trib_event event, trib_stream stream);
trib_status tri_nccl_event_wait(int32_t device, trib_event event);
trib_status tri_nccl_event_query(int32_t device, trib_event event, bool *out_done);
trib_status tri_nccl_event_elapsed(int32_t device, trib_event start, trib_event end, float *out_ms);
trib_status tri_nccl_event_destroy(int32_t device, trib_event event);

/* capture.c */
uint64_t tri_nccl_capturing(int32_t device, trib_stream stream);
trib_status tri_nccl_keep(int32_t device, trib_stream stream, void (*gone)(void *argument),
                          void *argument);

/* open.c */
trib_status tri_nccl_id_create(trib_id *out);
trib_status tri_nccl_open(struct tri_transport **out, const trib_id *id, int32_t rank, int32_t size,
                          int32_t device, const struct tri_config *config, uint32_t timeout_ms);
trib_status tri_nccl_open_group(struct tri_transport **out, const int32_t *devices, int32_t size,
                                const struct tri_config *config, uint32_t timeout_ms);

/* adopt.c */
trib_status tri_nccl_inspect(struct tri_adoptee *out, void *handle);
trib_status tri_nccl_adopt(struct tri_transport **out, trib_id *id, const struct tri_adoptee *of,
                           const struct tri_config *config, uint32_t timeout_ms);

/* split.c */
trib_status tri_nccl_split(struct tri_transport **out, struct tri_transport *parent, int32_t color,
                           int32_t key, const struct tri_config *config, uint32_t timeout_ms);

/* collectives.c */
trib_status tri_nccl_collective(const struct tri_call *calls, size_t n);
const char *tri_nccl_refuses(const struct tri_call *call);
bool tri_nccl_packs_itself(const struct tri_call *call);
const char *tri_nccl_stages(const struct tri_call *call);

/* close.c */
trib_status tri_nccl_close(struct tri_transport *transport, uint32_t timeout_ms);

#endif
