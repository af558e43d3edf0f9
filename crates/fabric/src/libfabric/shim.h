/* One connected endpoint of libfabric, for raw/libfabric.rs. Not for several threads at once. Results below 0 are -FI_E... */
#ifndef CAIRN_FABRIC_SHIM_H
#define CAIRN_FABRIC_SHIM_H

#include <stddef.h>
#include <stdint.h>

struct cf;
struct cf_region;

/* What the provider turned out to do. */
struct cf_attributes {
    /* Operations take effect at the peer in order (FI_ORDER_*, those that matter here). */
    uint8_t ordered;
    /* ... among messages. */
    uint8_t messages_ordered;
    /* Readable when there may be completions, or -1. */
    int wait_fd;
};

enum { CF_SENT = 1, CF_READ = 2, CF_MESSAGE = 3, CF_TOLD = 4, CF_FAILED = 5, CF_WRITTEN = 6 };

struct cf_completion {
    uint8_t kind;
    /* CF_TOLD used up a receive: `slot` has it. */
    uint8_t has_slot;
    uint32_t slot;
    uint32_t len;
    uint32_t imm;
    int error;
};

/* Finds the provider. `msg`: endpoints that connect, else datagrams. `node`: the own address, may be null. `dest`: where to connect to. */
int cf_new(const char *provider, int msg, const char *node, const uint8_t *dest, size_t dest_len, struct cf **out);
void cf_free(struct cf *cf);

/* A passive endpoint, and the next request to it that comes with that token. */
int cf_listen(struct cf *cf);
int cf_await_request(struct cf *cf, const uint8_t *token, size_t token_len, int wait_ms);

/* The endpoint, with `slots` buffers of `slot_len` bytes each way, all receives posted. Keys of memory are random numbers. */
int cf_endpoint(struct cf *cf, uint32_t slots, size_t slot_len, const uint64_t keys[2]);
/* Address of the passive endpoint, or of the endpoint. */
int cf_name(struct cf *cf, uint8_t *name, size_t *len);
/* One of these, by the kind of endpoint and the side. */
int cf_accept(struct cf *cf, int wait_ms);
int cf_connect(struct cf *cf, const uint8_t *token, size_t token_len, int wait_ms);
int cf_insert(struct cf *cf, const uint8_t *name);

void cf_attributes(const struct cf *cf, struct cf_attributes *out);
uint8_t *cf_outgoing(struct cf *cf, uint32_t slot);
const uint8_t *cf_incoming(struct cf *cf, uint32_t slot);

/* The word that the peer writes, and where it writes it. */
uint64_t cf_word(const struct cf *cf);
int cf_word_address(struct cf *cf, uint64_t *address, uint64_t *key);
/* Writes the peer's word. Says when it is done by CF_SENT with the slot after the last. */
int cf_write_word(struct cf *cf, uint64_t value, uint64_t address, uint64_t key);

/* From an outgoing slot. -FI_EAGAIN: not now. `delivered`: done is when it is done at the peer. */
int cf_send(struct cf *cf, uint32_t slot, size_t len);
int cf_write(struct cf *cf, uint32_t slot, size_t len, uint64_t address, uint64_t key, int tell, uint32_t imm, int delivered);
/* Into memory of the shim, until cf_end_read. */
int cf_read(struct cf *cf, uint32_t read, size_t len, uint64_t address, uint64_t key, uint64_t local_key);
const uint8_t *cf_read_bytes(const struct cf *cf, uint32_t read);
void cf_end_read(struct cf *cf, uint32_t read);
int cf_receive(struct cf *cf, uint32_t slot);

/* What is done; how many. A failure of the connection is one of them. */
int cf_poll(struct cf *cf, struct cf_completion *out, int max);
/* Whether the peer has disconnected. */
int cf_is_shut(struct cf *cf);
/* 0: wait_fd may be waited for. */
int cf_try_wait(struct cf *cf);

/* Memory that the peer may read, and write if that is said. */
int cf_register(struct cf *cf, void *memory, size_t len, int write, uint64_t wanted_key, struct cf_region **out,
                uint64_t *address, uint64_t *key);
void cf_unregister(struct cf_region *region);
/* Nothing comes or goes any more. */
void cf_close_endpoint(struct cf *cf);

const char *cf_error(int error);

#endif
