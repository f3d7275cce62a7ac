/* The Portals 4 network programming interface, as far as the software NI of
 * this folder implements it. Names, types, constants and signatures follow the
 * public specification (4.x). The build uses this header only if the machine
 * has no <portals4.h> (api.h); both have the same guard.
 *
 * Atomics, triggered operations, bundles and logical addressing are left
 * out. */
#ifndef PORTALS4_H
#define PORTALS4_H

#include <stdint.h>

/* --- What functions return ---------------------------------------------- */

enum {
    PTL_OK = 0,
    PTL_ARG_INVALID,
    /* the timeout expired before a counter reached its threshold */
    PTL_CT_NONE_REACHED,
    PTL_EQ_DROPPED, /* an event was returned, but others were lost */
    PTL_EQ_EMPTY,
    PTL_FAIL,
    PTL_IGNORED, /* the request is legal, but this NI does not serve it */
    /* a message is in flight into or out of the list entry, or other objects
     * refer to the object */
    PTL_IN_USE,
    PTL_INTERRUPTED,
    PTL_LIST_TOO_LONG,
    PTL_NO_INIT,
    PTL_NO_SPACE,
    PTL_PID_IN_USE,
    PTL_PT_FULL,
    /* a portal table entry with flow control needs an event queue */
    PTL_PT_EQ_NEEDED,
    PTL_PT_IN_USE
};

/* --- Base types ---------------------------------------------------------- */

typedef uint64_t ptl_size_t;
typedef uint64_t ptl_match_bits_t;
typedef uint64_t ptl_hdr_data_t;
typedef uint32_t ptl_pt_index_t;
typedef uint32_t ptl_interface_t;
typedef uint32_t ptl_time_t; /* milliseconds */
typedef uint32_t ptl_nid_t;
typedef uint32_t ptl_pid_t;
typedef uint32_t ptl_rank_t;
typedef uint32_t ptl_uid_t;

/* Handles name objects of one NI; PTL_INVALID_HANDLE names none. */
typedef uint32_t ptl_handle_any_t;
typedef ptl_handle_any_t ptl_handle_ni_t;
typedef ptl_handle_any_t ptl_handle_eq_t;
typedef ptl_handle_any_t ptl_handle_ct_t;
typedef ptl_handle_any_t ptl_handle_md_t;
typedef ptl_handle_any_t ptl_handle_le_t;
typedef ptl_handle_any_t ptl_handle_me_t;

#define PTL_INVALID_HANDLE ((ptl_handle_any_t)0xffffffff)
#define PTL_EQ_NONE ((ptl_handle_eq_t)0xfffffffe)
#define PTL_CT_NONE ((ptl_handle_ct_t)0xfffffffd)

#define PTL_IFACE_DEFAULT ((ptl_interface_t)0xffffffff)
#define PTL_NID_ANY ((ptl_nid_t)0xffffffff)
#define PTL_PID_ANY ((ptl_pid_t)0xffffffff)
#define PTL_PID_MAX ((ptl_pid_t)65535)
#define PTL_RANK_ANY ((ptl_rank_t)0xffffffff)
#define PTL_UID_ANY ((ptl_uid_t)0xffffffff)
#define PTL_PT_ANY ((ptl_pt_index_t)0xffffffff)
#define PTL_TIME_FOREVER ((ptl_time_t)0xffffffff)
#define PTL_SIZE_MAX UINT64_MAX

typedef union {
    struct {
        ptl_nid_t nid;
        ptl_pid_t pid;
    } phys;
    ptl_rank_t rank;
} ptl_process_t;

/* One piece of a scattered buffer. In an MD or list entry with PTL_IOVEC,
 * `start` points to an array of pieces, and `length` is their number. */
typedef struct {
    void *iov_base;
    ptl_size_t iov_len;
} ptl_iovec_t;

#define PTL_IOVEC (1u << 0)

/* --- The library and its interfaces ------------------------------------- */

int PtlInit(void);
void PtlFini(void);

#define PTL_NI_MATCHING (1u << 0)
#define PTL_NI_NO_MATCHING (1u << 1)
#define PTL_NI_LOGICAL (1u << 2)
#define PTL_NI_PHYSICAL (1u << 3)

#define PTL_TARGET_BIND_INACCESSIBLE (1u << 0)
#define PTL_TOTAL_DATA_ORDERING (1u << 1)
#define PTL_COHERENT_ATOMICS (1u << 2)

typedef struct {
    /* maximum number of list entries of all portal table entries together */
    int max_entries;
    int max_unexpected_headers;
    int max_mds;
    int max_cts;
    int max_eqs;
    int max_pt_index; /* largest index of a portal table */
    /* maximum number of pieces of memory of one descriptor or list entry */
    int max_iovecs;
    /* maximum number of entries of one list (priority or overflow) */
    int max_list_size;
    int max_triggered_ops;
    ptl_size_t max_msg_size;
    ptl_size_t max_atomic_size;
    ptl_size_t max_fetch_atomic_size;
    ptl_size_t max_waw_ordered_size;
    ptl_size_t max_war_ordered_size;
    /* longest put from a PTL_MD_VOLATILE descriptor */
    ptl_size_t max_volatile_size;
    unsigned int features;
} ptl_ni_limits_t;

typedef enum {
    PTL_SR_DROP_COUNT,
    PTL_SR_PERMISSION_VIOLATIONS,
    PTL_SR_OPERATION_VIOLATIONS
} ptl_sr_index_t;
typedef int ptl_sr_value_t;

int PtlNIInit(ptl_interface_t iface, unsigned int options, ptl_pid_t pid,
              const ptl_ni_limits_t *desired, ptl_ni_limits_t *actual,
              ptl_handle_ni_t *ni_handle);
int PtlNIFini(ptl_handle_ni_t ni_handle);
int PtlNIStatus(ptl_handle_ni_t ni_handle, ptl_sr_index_t status_register,
                ptl_sr_value_t *status);
int PtlNIHandle(ptl_handle_any_t handle, ptl_handle_ni_t *ni_handle);
int PtlHandleIsEqual(ptl_handle_any_t handle1, ptl_handle_any_t handle2);

int PtlGetUid(ptl_handle_ni_t ni_handle, ptl_uid_t *uid);
int PtlGetId(ptl_handle_ni_t ni_handle, ptl_process_t *id);
int PtlGetPhysId(ptl_handle_ni_t ni_handle, ptl_process_t *id);

/* --- Why an operation failed: ni_fail_type of an event ------------------- */

typedef unsigned char ptl_ni_fail_t;
enum {
    PTL_NI_OK = 0,
    PTL_NI_UNDELIVERABLE, /* the target process is gone or cannot be reached */
    PTL_NI_DROPPED, /* no list entry of the target took the message */
    /* flow control has disabled the portal table entry: resend when it is
     * enabled again */
    PTL_NI_PT_DISABLED,
    /* the list entry accepts messages of another user only */
    PTL_NI_PERM_VIOLATION,
    PTL_NI_OP_VIOLATION, /* the list entry does not permit the operation */
    PTL_NI_NO_MATCH, /* PtlMESearch or PtlLESearch found no message */
    PTL_NI_SEGV
};

/* --- Portal table -------------------------------------------------------- */

#define PTL_PT_ONLY_USE_ONCE (1u << 0)
#define PTL_PT_FLOWCTRL (1u << 1)
#define PTL_PT_ONLY_TRUNCATE (1u << 2)
#define PTL_PT_MATCH_UNORDERED (1u << 3)

int PtlPTAlloc(ptl_handle_ni_t ni_handle, unsigned int options,
               ptl_handle_eq_t eq_handle, ptl_pt_index_t pt_index_req,
               ptl_pt_index_t *pt_index);
int PtlPTFree(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index);
int PtlPTDisable(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index);
int PtlPTEnable(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index);

/* --- Events -------------------------------------------------------------- */

typedef unsigned char ptl_event_kind_t;
enum {
    PTL_EVENT_GET = 0,
    PTL_EVENT_GET_OVERFLOW,
    PTL_EVENT_PUT,
    PTL_EVENT_PUT_OVERFLOW,
    PTL_EVENT_REPLY,
    PTL_EVENT_SEND,
    PTL_EVENT_ACK,
    PTL_EVENT_PT_DISABLED,
    PTL_EVENT_LINK,
    PTL_EVENT_AUTO_UNLINK,
    PTL_EVENT_AUTO_FREE,
    PTL_EVENT_SEARCH
};

typedef unsigned char ptl_list_t;
enum { PTL_PRIORITY_LIST = 0, PTL_OVERFLOW_LIST };

typedef struct {
    void *start; /* address of the data at the target */
    /* user_ptr of the put, get or search, or of the list entry */
    void *user_ptr;
    ptl_hdr_data_t hdr_data;
    ptl_match_bits_t match_bits;
    ptl_size_t rlength; /* number of bytes that the initiator requested */
    ptl_size_t mlength; /* number of bytes that were moved */
    ptl_size_t remote_offset;
    ptl_process_t initiator;
    ptl_uid_t uid;
    ptl_pt_index_t pt_index;
    ptl_event_kind_t type;
    ptl_list_t ptl_list;
    ptl_ni_fail_t ni_fail_type;
} ptl_event_t;

int PtlEQAlloc(ptl_handle_ni_t ni_handle, ptl_size_t count,
               ptl_handle_eq_t *eq_handle);
int PtlEQFree(ptl_handle_eq_t eq_handle);
int PtlEQGet(ptl_handle_eq_t eq_handle, ptl_event_t *event);
int PtlEQWait(ptl_handle_eq_t eq_handle, ptl_event_t *event);
int PtlEQPoll(const ptl_handle_eq_t *eq_handles, unsigned int size,
              ptl_time_t timeout, ptl_event_t *event, unsigned int *which);

/* --- Counting events ----------------------------------------------------- */

typedef struct {
    ptl_size_t success;
    ptl_size_t failure;
} ptl_ct_event_t;

int PtlCTAlloc(ptl_handle_ni_t ni_handle, ptl_handle_ct_t *ct_handle);
int PtlCTFree(ptl_handle_ct_t ct_handle);
int PtlCTGet(ptl_handle_ct_t ct_handle, ptl_ct_event_t *event);
int PtlCTWait(ptl_handle_ct_t ct_handle, ptl_size_t test,
              ptl_ct_event_t *event);
int PtlCTPoll(const ptl_handle_ct_t *ct_handles, const ptl_size_t *tests,
              unsigned int size, ptl_time_t timeout, ptl_ct_event_t *event,
              unsigned int *which);
int PtlCTSet(ptl_handle_ct_t ct_handle, ptl_ct_event_t new_ct);
int PtlCTInc(ptl_handle_ct_t ct_handle, ptl_ct_event_t increment);

/* --- Memory descriptors -------------------------------------------------- */

#define PTL_MD_EVENT_CT_SEND (1u << 1)
#define PTL_MD_EVENT_CT_REPLY (1u << 2)
#define PTL_MD_EVENT_CT_ACK (1u << 3)
#define PTL_MD_EVENT_CT_BYTES (1u << 4)
#define PTL_MD_UNORDERED (1u << 5)
#define PTL_MD_EVENT_SUCCESS_DISABLE (1u << 6)
#define PTL_MD_EVENT_SEND_DISABLE (1u << 7)
#define PTL_MD_VOLATILE (1u << 8)

typedef struct {
    void *start;
    ptl_size_t length;
    unsigned int options;
    ptl_handle_eq_t eq_handle;
    ptl_handle_ct_t ct_handle;
} ptl_md_t;

int PtlMDBind(ptl_handle_ni_t ni_handle, const ptl_md_t *md,
              ptl_handle_md_t *md_handle);
int PtlMDRelease(ptl_handle_md_t md_handle);

/* --- List entries -------------------------------------------------------- */

#define PTL_ME_OP_PUT (1u << 1)
#define PTL_ME_OP_GET (1u << 2)
#define PTL_ME_USE_ONCE (1u << 3)
#define PTL_ME_ACK_DISABLE (1u << 4)
#define PTL_ME_UNEXPECTED_HDR_DISABLE (1u << 5)
#define PTL_ME_IS_ACCESSIBLE (1u << 6)
#define PTL_ME_EVENT_LINK_DISABLE (1u << 7)
#define PTL_ME_EVENT_COMM_DISABLE (1u << 8)
#define PTL_ME_EVENT_FLOWCTRL_DISABLE (1u << 9)
#define PTL_ME_EVENT_SUCCESS_DISABLE (1u << 10)
#define PTL_ME_EVENT_OVER_DISABLE (1u << 11)
#define PTL_ME_EVENT_UNLINK_DISABLE (1u << 12)
#define PTL_ME_EVENT_CT_COMM (1u << 13)
#define PTL_ME_EVENT_CT_OVERFLOW (1u << 14)
#define PTL_ME_EVENT_CT_BYTES (1u << 15)
#define PTL_ME_MANAGE_LOCAL (1u << 16)
#define PTL_ME_NO_TRUNCATE (1u << 17)
#define PTL_ME_MAY_ALIGN (1u << 18)

#define PTL_LE_OP_PUT PTL_ME_OP_PUT
#define PTL_LE_OP_GET PTL_ME_OP_GET
#define PTL_LE_USE_ONCE PTL_ME_USE_ONCE
#define PTL_LE_ACK_DISABLE PTL_ME_ACK_DISABLE
#define PTL_LE_UNEXPECTED_HDR_DISABLE PTL_ME_UNEXPECTED_HDR_DISABLE
#define PTL_LE_IS_ACCESSIBLE PTL_ME_IS_ACCESSIBLE
#define PTL_LE_EVENT_LINK_DISABLE PTL_ME_EVENT_LINK_DISABLE
#define PTL_LE_EVENT_COMM_DISABLE PTL_ME_EVENT_COMM_DISABLE
#define PTL_LE_EVENT_FLOWCTRL_DISABLE PTL_ME_EVENT_FLOWCTRL_DISABLE
#define PTL_LE_EVENT_SUCCESS_DISABLE PTL_ME_EVENT_SUCCESS_DISABLE
#define PTL_LE_EVENT_OVER_DISABLE PTL_ME_EVENT_OVER_DISABLE
#define PTL_LE_EVENT_UNLINK_DISABLE PTL_ME_EVENT_UNLINK_DISABLE
#define PTL_LE_EVENT_CT_COMM PTL_ME_EVENT_CT_COMM
#define PTL_LE_EVENT_CT_OVERFLOW PTL_ME_EVENT_CT_OVERFLOW
#define PTL_LE_EVENT_CT_BYTES PTL_ME_EVENT_CT_BYTES

typedef unsigned char ptl_search_op_t;
enum { PTL_SEARCH_ONLY = 0, PTL_SEARCH_DELETE };

typedef struct {
    void *start;
    ptl_size_t length;
    ptl_handle_ct_t ct_handle;
    ptl_uid_t uid;
    unsigned int options;
} ptl_le_t;

typedef struct {
    void *start;
    ptl_size_t length;
    ptl_handle_ct_t ct_handle;
    ptl_uid_t uid;
    unsigned int options;
    ptl_process_t match_id;
    ptl_match_bits_t match_bits;
    ptl_match_bits_t ignore_bits;
    /* number of free bytes below which the list entry is unlinked
     * (PTL_ME_MANAGE_LOCAL only) */
    ptl_size_t min_free;
} ptl_me_t;

int PtlLEAppend(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index,
                const ptl_le_t *le, ptl_list_t ptl_list, void *user_ptr,
                ptl_handle_le_t *le_handle);
int PtlLEUnlink(ptl_handle_le_t le_handle);
int PtlLESearch(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index,
                const ptl_le_t *le, ptl_search_op_t ptl_search_op,
                void *user_ptr);
int PtlMEAppend(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index,
                const ptl_me_t *me, ptl_list_t ptl_list, void *user_ptr,
                ptl_handle_me_t *me_handle);
int PtlMEUnlink(ptl_handle_me_t me_handle);
int PtlMESearch(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index,
                const ptl_me_t *me, ptl_search_op_t ptl_search_op,
                void *user_ptr);

/* --- Moving data --------------------------------------------------------- */

typedef unsigned char ptl_ack_req_t;
enum { PTL_NO_ACK_REQ = 0, PTL_ACK_REQ, PTL_CT_ACK_REQ, PTL_OC_ACK_REQ };

int PtlPut(ptl_handle_md_t md_handle, ptl_size_t local_offset,
           ptl_size_t length, ptl_ack_req_t ack_req, ptl_process_t target_id,
           ptl_pt_index_t pt_index, ptl_match_bits_t match_bits,
           ptl_size_t remote_offset, void *user_ptr, ptl_hdr_data_t hdr_data);
int PtlGet(ptl_handle_md_t md_handle, ptl_size_t local_offset,
           ptl_size_t length, ptl_process_t target_id, ptl_pt_index_t pt_index,
           ptl_match_bits_t match_bits, ptl_size_t remote_offset,
           void *user_ptr);

#endif
