/* What the files of guarded calls share. guarded_call.c says how guarded memory is laid out. */
#ifndef DV_CHECK_GUARDED_H
#define DV_CHECK_GUARDED_H

#include <pthread.h>

#include "check.h"

enum { PAGE_BYTES = 4096, GUARD_BYTES = 16 * PAGE_BYTES, MAX_REGIONS = 4096, GAP_BYTE = 0xc3, MAX_LEFT_BYTES = 1 << 16 };

/* Uses of a region of guarded memory. For USE_SHAPE and USE_STRIDES, guarded_region.index is that of the tensor, or
 * FIRST_RESULT_INDEX + that of the result. USE_LIST_DATA: array or text of a list or string argument. */
enum region_use {
    USE_ARGUMENT,
    USE_RESULT,
    USE_TEMPORARY,
    USE_WORKSPACE,
    USE_KERNEL,
    USE_SCRATCH,
    USE_STAGING_COPY,
    USE_SHAPE,
    USE_STRIDES,
    USE_LIST_DATA
};
enum { FIRST_RESULT_INDEX = CHECK_MAX_TENSORS };
typedef struct guarded_region {
    uintptr_t begin, end;          /* addresses of the first page, and after the last one */
    uintptr_t data, first_element; /* data: address of the lowest byte; first_element: address of the element with index 0 */
    size_t bytes, sparse_margin;   /* sparse_margin: bytes reserved before and after sparse memory; 0: not sparse */
    enum region_use use;
    size_t index;     /* index of the case's tensor, of the result, or of the argument, by `use` */
    bool is_readonly; /* the pages of the region are write-protected */
    bool is_freed;    /* the memory was given back: its pages are inaccessible */
} guarded_region;

typedef struct host_tensor {
    dv_tensor t, as_allocated;
    int index;
    bool is_view;
    struct host_tensor *next;
    int64_t local_dims[]; /* for a temporary of a decomposition: its sizes, then its strides */
} host_tensor;

/* The host, and the state of the current call. */
extern struct guarded_host {
    dv_host host;
    dv_test_hooks hooks; /* test hooks, to which `host` points */
    check_guarded_call *call;
    const check_case *c;
    uintptr_t area, area_begin, used_end,
        mapped_end; /* area: the reserved range; area_begin: its middle, where tensors begin; used_end: end of this call's
                       regions; mapped_end: end of accessible pages */
    size_t area_bytes;
    uintptr_t sparse_hint; /* address at which the next sparse memory is asked for, near the last one, since qemu keeps some bytes
                              for each page ever mapped */
    guarded_region regions[MAX_REGIONS];
    size_t nregions,
        nreusable; /* nregions: regions of this call; nreusable: regions in the array that still are as the last call left them */
    host_tensor *host_tensors;
    bool in_kernel, lacked_memory;
    check_values values;
    pthread_mutex_t lock;
    uint8_t
        left_scratch[MAX_LEFT_BYTES]; /* first bytes of the scratch that the last chunk of a call with reuse_scratch gave back */
    size_t left_scratch_bytes;
} check_guarded_host;

/* ---- Regions (guarded_region.c) ---- */

/* Access to sparse memory. ACCESS_READ_ZEROS: all bytes read as 0. ACCESS_REPEATED_PAGES: the same few pages are mapped again and
 * again, except at the end. */
enum sparse_access { ACCESS_NONE, ACCESS_READ_ZEROS, ACCESS_REPEATED_PAGES };
/* Reserves the range of addresses for guarded memory at the first call, as large as possible between MIN_AREA_BYTES and
 * MAX_AREA_BYTES. Returns false if none can be reserved. */
bool check_guarded_try_reserve_area(struct guarded_host *m);
/* Converts an address to a pointer. */
void *check_guarded_as_pointer(uintptr_t p);
/* Makes all pages inaccessible that the last call left after this call's regions. */
void check_guarded_discard_reusable_regions(struct guarded_host *m);
/* Begins a call: frees the last call's result structs and sparse memory, notes the addresses of its tensors, and starts with no
 * regions. Other pages stay mapped for reuse. */
void check_guarded_begin_call(struct guarded_host *m);
/* True if an address is not near region r, but was inside an argument or result of an earlier call. */
bool check_guarded_was_earlier_tensor_address(const guarded_region *r, uintptr_t address);
/* Returns this call's region with this use and index; NULL if there is none. */
const guarded_region *check_guarded_find_region(enum region_use use, size_t index);
/* Allocates a region of sparse memory that ends at a guard page. As many addresses as a wrong 32-bit index can reach are reserved
 * before and after it. Returns NULL if that fails. */
guarded_region *check_guarded_alloc_sparse(
    struct guarded_host *m, size_t bytes, size_t element_size, enum region_use use, size_t index, enum sparse_access access);
/* Makes an argument tensor in sparse memory: one with a wide stride, which is filled, or a huge one, which reads as zeros or
 * repeated pages. Returns false if that fails. */
bool check_guarded_try_make_sparse_argument(struct guarded_host *m, size_t tensor_index, size_t bytes, bool written);
/* Reserves addresses for a region, and aligns its data. *reusable: receives the last call's region whose pages are at the same
 * place; its `begin` is 0 if there is none. Returns NULL if there are too many bytes or regions. */
guarded_region *check_guarded_reserve_region(
    struct guarded_host *m, size_t bytes, size_t alignment, enum region_use use, size_t index, guarded_region *reusable);
/* Makes the pages of a region accessible, fills its data with fill_byte and the rest of its pages with GAP_BYTE. Returns false if
 * mprotect() fails. */
bool check_guarded_try_map_and_fill_region(guarded_region *r, const guarded_region *reusable, int fill_byte);
/* Makes the pages of a region read-only. Returns false if that fails. */
bool check_guarded_try_make_readonly(guarded_region *r);
/* True if the last call's region at the same place holds the same bytes and is read-only; then r needs no copy and is marked
 * read-only. */
bool check_guarded_can_reuse_readonly_bytes(guarded_region *r, const guarded_region *reusable, const void *data);
/* Returns the byte that fills one kind of undefined memory in a call. */
uint8_t check_guarded_get_poison(const check_guarded_call *call, enum check_undefined_memory memory);
/* Allocates a region whose data is filled with the call's poison byte. Returns NULL if there are too many bytes or regions. */
guarded_region *check_guarded_alloc_poisoned(
    struct guarded_host *m, size_t bytes, size_t alignment, enum region_use use, size_t index);
/* Returns a read-only copy of `bytes` bytes of data in guarded memory. Returns NULL if that fails. */
const void *check_guarded_alloc_readonly_copy(
    struct guarded_host *m, const void *data, size_t bytes, size_t alignment, enum region_use use, size_t index);
/* True if some byte between a region's data and its page bounds changed. *first_changed: address of the first one. */
bool check_guarded_has_changed_gap_byte(const guarded_region *r, const uint8_t **first_changed);

/* ---- Elements (guarded_contents.c) ---- */

/* Fills an argument tensor with its elements: reuses the last call's pages, copies remembered bytes, or draws them. Then perturbs
 * or replaces elements if the call asks for that. reusable: the last call's region. Returns false if memory is out. */
bool check_guarded_try_fill_argument_elements(
    struct guarded_host *m, size_t tensor_index, guarded_region *r, const guarded_region *reusable);

#endif
