#include "shim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#define READS 16
#define ORDER (FI_ORDER_RAW | FI_ORDER_WAW | FI_ORDER_WAS | FI_ORDER_SAW | FI_ORDER_SAS)
/* Waiting for an event of the connection is cut into slices: a wake-up may get lost. */
#define SLICE_MS 20

/* What an operation has with it: the provider's part must come first. */
struct op {
    struct fi_context2 context;
    uint32_t index;
    uint8_t kind;
};

struct reading {
    struct op op;
    uint8_t *bytes;
    struct fid_mr *mr;
};

struct cf {
    int msg;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_eq *eq;
    struct fid_pep *pep;
    struct fid_domain *domain;
    struct fid_cq *cq;
    struct fid_av *av;
    struct fid_ep *ep;
    fi_addr_t peer;
    int wait_fd;
    int shut;

    uint32_t slots;
    size_t slot_len;
    /* The peer's word and the own copy of it, the outgoing slots, the incoming ones. */
    uint8_t *slab;
    size_t slab_len;
    struct fid_mr *slab_mr, *word_mr;
    struct op *out_ops, *in_ops;
    struct op word_op;
    struct reading reads[READS];
};

struct cf_region {
    struct fid_mr *mr;
};

#define WORDS 128

/* ---- finding the provider ------------------------------------------------------------------------------- */

static struct fi_info *hints(const char *provider, int msg) {
    struct fi_info *hints = fi_allocinfo();
    if (!hints) return NULL;
    hints->fabric_attr->prov_name = strdup(provider);
    hints->ep_attr->type = msg ? FI_EP_MSG : FI_EP_RDM;
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->domain_attr->cq_data_size = 4;
    return hints;
}

int cf_new(const char *provider, int msg, const char *node, const uint8_t *dest, size_t dest_len, struct cf **out) {
    struct cf *cf = calloc(1, sizeof *cf);
    struct fi_info *want = hints(provider, msg);
    int result = -FI_ENOMEM;
    if (!cf || !want || !want->fabric_attr->prov_name) goto done;
    cf->msg = msg;
    cf->wait_fd = -1;
    cf->peer = FI_ADDR_UNSPEC;
    if (dest) {
        /* fi_freeinfo frees it. */
        want->dest_addr = malloc(dest_len);
        if (!want->dest_addr) goto done;
        memcpy(want->dest_addr, dest, dest_len);
        want->dest_addrlen = dest_len;
        node = NULL;
    }
    result = fi_getinfo(FI_VERSION(1, 17), node, NULL, node ? FI_SOURCE : 0, want, &cf->info);
    if (result == 0) result = fi_fabric(cf->info->fabric_attr, &cf->fabric, NULL);
done:
    if (want) fi_freeinfo(want);
    if (result && cf) {
        cf_free(cf);
        cf = NULL;
    }
    *out = cf;
    return result;
}

static void close_fid(void *object) {
    struct fid **fid = object;
    if (*fid) fi_close(*fid);
    *fid = NULL;
}

void cf_close_endpoint(struct cf *cf) {
    if (cf->ep && cf->msg) fi_shutdown(cf->ep, 0);
    close_fid(&cf->ep);
}

void cf_free(struct cf *cf) {
    cf_close_endpoint(cf);
    for (uint32_t i = 0; i < READS; i++) cf_end_read(cf, i);
    close_fid(&cf->slab_mr);
    close_fid(&cf->word_mr);
    close_fid(&cf->av);
    close_fid(&cf->cq);
    close_fid(&cf->domain);
    close_fid(&cf->pep);
    close_fid(&cf->eq);
    close_fid(&cf->fabric);
    if (cf->info) fi_freeinfo(cf->info);
    free(cf->slab);
    free(cf->out_ops);
    free(cf->in_ops);
    free(cf);
}

/* ---- connecting ----------------------------------------------------------------------------------------- */

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int open_eq(struct cf *cf) {
    struct fi_eq_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
    return cf->eq ? 0 : fi_eq_open(cf->fabric, &attr, &cf->eq, NULL);
}

/* The next event of the connection, until `deadline`: how long it is, or an error. */
static ssize_t next_event(struct cf *cf, uint32_t *event, void *entry, size_t len, int64_t deadline) {
    for (;;) {
        int64_t left = deadline - now_ms();
        if (left <= 0) return -FI_ETIMEDOUT;
        ssize_t got = fi_eq_sread(cf->eq, event, entry, len, left < SLICE_MS ? (int)left : SLICE_MS, 0);
        if (got == -FI_EAVAIL) {
            struct fi_eq_err_entry error = {0};
            fi_eq_readerr(cf->eq, &error, 0);
            return error.err ? -error.err : -FI_EIO;
        }
        if (got != -FI_EAGAIN && got != -FI_EINTR && got != -FI_ETIMEDOUT) return got;
        /* Providers without progress of their own. */
        if (cf->cq) {
            struct fi_cq_data_entry none;
            (void)fi_cq_read(cf->cq, &none, 0);
        }
    }
}

int cf_listen(struct cf *cf) {
    int result = open_eq(cf);
    if (result == 0) result = fi_passive_ep(cf->fabric, cf->info, &cf->pep, NULL);
    if (result == 0) result = fi_pep_bind(cf->pep, &cf->eq->fid, 0);
    if (result == 0) result = fi_listen(cf->pep);
    return result;
}

int cf_await_request(struct cf *cf, const uint8_t *token, size_t token_len, int wait_ms) {
    int64_t deadline = now_ms() + wait_ms;
    struct {
        struct fi_eq_cm_entry head;
        uint8_t data[256];
    } entry;
    for (;;) {
        uint32_t event;
        memset(&entry, 0, sizeof entry);
        ssize_t got = next_event(cf, &event, &entry, sizeof entry, deadline);
        if (got < 0) return (int)got;
        if (event != FI_CONNREQ) continue;
        /* Providers may pad what they carry. */
        size_t len = (size_t)got - sizeof entry.head;
        if (len >= token_len && memcmp(entry.head.data, token, token_len) == 0) {
            fi_freeinfo(cf->info);
            cf->info = entry.head.info;
            return 0;
        }
        fi_reject(cf->pep, entry.head.info->handle, NULL, 0);
        fi_freeinfo(entry.head.info);
    }
}

/* Keys that can be chosen are told to nobody but the peer, and cannot be guessed. */
static int reg(struct cf *cf, void *memory, size_t len, uint64_t access, uint64_t key, struct fid_mr **mr) {
    size_t key_len = cf->info->domain_attr->mr_key_size;
    if (key_len < 8) key &= ((uint64_t)1 << 8 * key_len) - 1;
    int result = fi_mr_reg(cf->domain, memory, len, access, 0, key, 0, mr, NULL);
    if (result == 0 && cf->info->domain_attr->mr_mode & FI_MR_ENDPOINT) {
        result = fi_mr_bind(*mr, &cf->ep->fid, 0);
        if (result == 0) result = fi_mr_enable(*mr);
    }
    return result;
}

static uint64_t address_of(const struct cf *cf, const void *memory) {
    return cf->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)memory : 0;
}

int cf_endpoint(struct cf *cf, uint32_t slots, size_t slot_len, const uint64_t keys[2]) {
    cf->slots = slots;
    cf->slot_len = slot_len;
    cf->slab_len = (WORDS + 2 * slots * slot_len + 4095) / 4096 * 4096;
    cf->slab = aligned_alloc(4096, cf->slab_len);
    cf->out_ops = calloc(slots, sizeof *cf->out_ops);
    cf->in_ops = calloc(slots, sizeof *cf->in_ops);
    if (!cf->slab || !cf->out_ops || !cf->in_ops) return -FI_ENOMEM;
    memset(cf->slab, 0, cf->slab_len);
    for (uint32_t i = 0; i < slots; i++) {
        cf->out_ops[i].index = cf->in_ops[i].index = i;
        cf->in_ops[i].kind = CF_MESSAGE;
    }
    cf->word_op.index = slots;
    cf->word_op.kind = CF_SENT;

    int result = fi_domain(cf->fabric, cf->info, &cf->domain, NULL);
    if (result) return result;
    struct fi_cq_attr cq = {.size = 4 * slots + READS, .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD};
    result = fi_cq_open(cf->domain, &cq, &cf->cq, NULL);
    if (result == 0) {
        if (fi_control(&cf->cq->fid, FI_GETWAIT, &cf->wait_fd)) cf->wait_fd = -1;
    } else {
        cq.wait_obj = FI_WAIT_NONE;
        result = fi_cq_open(cf->domain, &cq, &cf->cq, NULL);
    }
    if (result == 0) result = fi_endpoint(cf->domain, cf->info, &cf->ep, NULL);
    if (result == 0) result = fi_ep_bind(cf->ep, &cf->cq->fid, FI_TRANSMIT | FI_RECV);
    if (result == 0 && cf->msg) {
        result = open_eq(cf);
        if (result == 0) result = fi_ep_bind(cf->ep, &cf->eq->fid, 0);
    } else if (result == 0) {
        struct fi_av_attr av = {.type = FI_AV_UNSPEC, .count = 1};
        result = fi_av_open(cf->domain, &av, &cf->av, NULL);
        if (result == 0) result = fi_ep_bind(cf->ep, &cf->av->fid, 0);
    }
    if (result == 0) result = fi_enable(cf->ep);
    if (result == 0) result = reg(cf, cf->slab, cf->slab_len, FI_SEND | FI_RECV | FI_READ | FI_WRITE, keys[0], &cf->slab_mr);
    if (result == 0) result = reg(cf, cf->slab, sizeof(uint64_t), FI_REMOTE_WRITE, keys[1], &cf->word_mr);
    for (uint32_t i = 0; result == 0 && i < slots; i++) result = cf_receive(cf, i);
    return result;
}

int cf_name(struct cf *cf, uint8_t *name, size_t *len) {
    return fi_getname(cf->pep ? &cf->pep->fid : &cf->ep->fid, name, len);
}

static int await_connected(struct cf *cf, int wait_ms) {
    int64_t deadline = now_ms() + wait_ms;
    for (;;) {
        struct {
            struct fi_eq_cm_entry head;
            uint8_t data[256];
        } entry;
        uint32_t event;
        ssize_t got = next_event(cf, &event, &entry, sizeof entry, deadline);
        if (got < 0) return (int)got;
        if (event == FI_CONNECTED) return 0;
        if (event == FI_SHUTDOWN) return -FI_ECONNRESET;
        /* One more request to a passive endpoint that has its peer. */
        if (event == FI_CONNREQ) {
            fi_reject(cf->pep, entry.head.info->handle, NULL, 0);
            fi_freeinfo(entry.head.info);
        }
    }
}

int cf_accept(struct cf *cf, int wait_ms) {
    int result = fi_accept(cf->ep, NULL, 0);
    return result ? result : await_connected(cf, wait_ms);
}

int cf_connect(struct cf *cf, const uint8_t *token, size_t token_len, int wait_ms) {
    int result = fi_connect(cf->ep, cf->info->dest_addr, token, token_len);
    return result ? result : await_connected(cf, wait_ms);
}

int cf_insert(struct cf *cf, const uint8_t *name) {
    int inserted = fi_av_insert(cf->av, name, 1, &cf->peer, 0, NULL);
    return inserted == 1 ? 0 : inserted < 0 ? inserted : -FI_EINVAL;
}

/* ---- operations ----------------------------------------------------------------------------------------- */

void cf_attributes(const struct cf *cf, struct cf_attributes *out) {
    uint64_t order = cf->info->tx_attr->msg_order & cf->info->rx_attr->msg_order;
    int long_enough = cf->info->ep_attr->max_order_waw_size >= cf->slot_len && cf->info->ep_attr->max_order_raw_size >= cf->slot_len;
    out->ordered = (order & ORDER) == ORDER && long_enough;
    out->messages_ordered = !!(order & FI_ORDER_SAS);
    out->wait_fd = cf->wait_fd;
}

uint8_t *cf_outgoing(struct cf *cf, uint32_t slot) { return cf->slab + WORDS + slot * cf->slot_len; }

static uint8_t *incoming(struct cf *cf, uint32_t slot) { return cf_outgoing(cf, cf->slots + slot); }

const uint8_t *cf_incoming(struct cf *cf, uint32_t slot) { return incoming(cf, slot); }

uint64_t cf_word(const struct cf *cf) { return __atomic_load_n((const uint64_t *)cf->slab, __ATOMIC_ACQUIRE); }

int cf_word_address(struct cf *cf, uint64_t *address, uint64_t *key) {
    *address = address_of(cf, cf->slab);
    *key = fi_mr_key(cf->word_mr);
    return *key == FI_KEY_NOTAVAIL ? -FI_ENOKEY : 0;
}

static int write_from(struct cf *cf, uint8_t *from, size_t len, uint64_t address, uint64_t key, uint64_t flags, uint32_t imm, struct op *op) {
    if (!cf->ep) return -FI_ECONNABORTED;
    void *desc = fi_mr_desc(cf->slab_mr);
    struct iovec local = {.iov_base = from, .iov_len = len};
    struct fi_rma_iov remote = {.addr = address, .len = len, .key = key};
    struct fi_msg_rma message = {.msg_iov = &local, .desc = &desc, .iov_count = 1, .addr = cf->peer,
                                 .rma_iov = &remote, .rma_iov_count = 1, .context = &op->context, .data = imm};
    return (int)fi_writemsg(cf->ep, &message, FI_COMPLETION | flags);
}

int cf_write_word(struct cf *cf, uint64_t value, uint64_t address, uint64_t key) {
    uint64_t *own = (uint64_t *)(cf->slab + WORDS / 2);
    *own = value;
    return write_from(cf, (uint8_t *)own, sizeof *own, address, key, 0, 0, &cf->word_op);
}

int cf_write(struct cf *cf, uint32_t slot, size_t len, uint64_t address, uint64_t key, int tell, uint32_t imm, int delivered) {
    uint64_t flags = (tell ? FI_REMOTE_CQ_DATA : 0) | (delivered ? FI_DELIVERY_COMPLETE : 0);
    cf->out_ops[slot].kind = CF_WRITTEN;
    return write_from(cf, cf_outgoing(cf, slot), len, address, key, flags, imm, &cf->out_ops[slot]);
}

int cf_send(struct cf *cf, uint32_t slot, size_t len) {
    if (!cf->ep) return -FI_ECONNABORTED;
    void *desc = fi_mr_desc(cf->slab_mr);
    struct iovec local = {.iov_base = cf_outgoing(cf, slot), .iov_len = len};
    cf->out_ops[slot].kind = CF_SENT;
    struct fi_msg message = {.msg_iov = &local, .desc = &desc, .iov_count = 1, .addr = cf->peer,
                             .context = &cf->out_ops[slot].context};
    return (int)fi_sendmsg(cf->ep, &message, FI_COMPLETION);
}

int cf_read(struct cf *cf, uint32_t read, size_t len, uint64_t address, uint64_t key, uint64_t local_key) {
    struct reading *reading = &cf->reads[read];
    if (!cf->ep) return -FI_ECONNABORTED;
    if (!reading->bytes) {
        reading->op.index = read;
        reading->op.kind = CF_READ;
        reading->bytes = malloc(len ? len : 1);
        if (!reading->bytes) return -FI_ENOMEM;
        if (cf->info->domain_attr->mr_mode & FI_MR_LOCAL) {
            int result = reg(cf, reading->bytes, len ? len : 1, FI_READ, local_key, &reading->mr);
            if (result) return result;
        }
    }
    void *desc = reading->mr ? fi_mr_desc(reading->mr) : NULL;
    struct iovec local = {.iov_base = reading->bytes, .iov_len = len};
    struct fi_rma_iov remote = {.addr = address, .len = len, .key = key};
    struct fi_msg_rma message = {.msg_iov = &local, .desc = &desc, .iov_count = 1, .addr = cf->peer,
                                 .rma_iov = &remote, .rma_iov_count = 1, .context = &reading->op.context};
    return (int)fi_readmsg(cf->ep, &message, FI_COMPLETION);
}

const uint8_t *cf_read_bytes(const struct cf *cf, uint32_t read) { return cf->reads[read].bytes; }

void cf_end_read(struct cf *cf, uint32_t read) {
    struct reading *reading = &cf->reads[read];
    close_fid(&reading->mr);
    free(reading->bytes);
    reading->bytes = NULL;
}

int cf_receive(struct cf *cf, uint32_t slot) {
    if (!cf->ep) return -FI_ECONNABORTED;
    return (int)fi_recv(cf->ep, incoming(cf, slot), cf->slot_len, fi_mr_desc(cf->slab_mr), FI_ADDR_UNSPEC, &cf->in_ops[slot].context);
}

/* ---- completions ---------------------------------------------------------------------------------------- */

static int failure(struct cf *cf) {
    struct fi_cq_err_entry error = {0};
    ssize_t got = fi_cq_readerr(cf->cq, &error, 0);
    return got == 1 && error.err ? error.err : FI_EIO;
}

int cf_poll(struct cf *cf, struct cf_completion *out, int max) {
    struct fi_cq_data_entry entries[16];
    ssize_t got = fi_cq_read(cf->cq, entries, max < 16 ? (size_t)max : 16);
    if (got == -FI_EAGAIN || got == -FI_EINTR) return 0;
    if (got < 0) {
        *out = (struct cf_completion){.kind = CF_FAILED, .error = got == -FI_EAVAIL ? failure(cf) : (int)-got};
        return 1;
    }
    for (ssize_t i = 0; i < got; i++) {
        struct op *op = entries[i].op_context;
        if (entries[i].flags & FI_REMOTE_CQ_DATA) {
            /* Of hardware each immediate uses up a receive. */
            int has_slot = cf->info->mode & FI_RX_CQ_DATA && op;
            out[i] = (struct cf_completion){.kind = CF_TOLD, .has_slot = (uint8_t)has_slot, .slot = has_slot ? op->index : 0, .imm = (uint32_t)entries[i].data};
        } else if (!op) {
            out[i] = (struct cf_completion){.kind = CF_FAILED, .error = FI_EIO};
        } else {
            out[i] = (struct cf_completion){.kind = op->kind, .slot = op->index, .len = (uint32_t)entries[i].len};
        }
    }
    return (int)got;
}

int cf_is_shut(struct cf *cf) {
    struct {
        struct fi_eq_cm_entry head;
        uint8_t data[256];
    } entry;
    uint32_t event;
    if (!cf->eq || cf->shut) return cf->shut;
    ssize_t got = fi_eq_read(cf->eq, &event, &entry, sizeof entry, 0);
    if (got == -FI_EAVAIL) {
        struct fi_eq_err_entry error = {0};
        fi_eq_readerr(cf->eq, &error, 0);
        cf->shut = 1;
    } else if (got > 0 && event == FI_SHUTDOWN) {
        cf->shut = 1;
    } else if (got > 0 && event == FI_CONNREQ) {
        fi_reject(cf->pep, entry.head.info->handle, NULL, 0);
        fi_freeinfo(entry.head.info);
    }
    return cf->shut;
}

int cf_try_wait(struct cf *cf) {
    struct fid *fids[] = {&cf->cq->fid};
    return fi_trywait(cf->fabric, fids, 1);
}

/* ---- memory --------------------------------------------------------------------------------------------- */

int cf_register(struct cf *cf, void *memory, size_t len, int write, uint64_t wanted_key, struct cf_region **out,
                uint64_t *address, uint64_t *key) {
    if (!cf->ep) return -FI_ECONNABORTED;
    struct cf_region *region = calloc(1, sizeof *region);
    if (!region) return -FI_ENOMEM;
    uint64_t access = FI_REMOTE_READ | (write ? FI_REMOTE_WRITE : 0);
    int result = reg(cf, memory, len, access, wanted_key, &region->mr);
    if (result == 0) {
        *address = address_of(cf, memory);
        *key = fi_mr_key(region->mr);
        if (*key == FI_KEY_NOTAVAIL) result = -FI_ENOKEY;
    }
    if (result) {
        cf_unregister(region);
        return result;
    }
    *out = region;
    return 0;
}

void cf_unregister(struct cf_region *region) {
    close_fid(&region->mr);
    free(region);
}

const char *cf_error(int error) { return fi_strerror(error < 0 ? -error : error); }
