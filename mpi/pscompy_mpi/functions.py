"""The functions of MPI that the library exports: what each one takes, and where it lives.

TABLE has sections. A section begins with "== where room"; where is one of WHERE, the room is the
C file, or the module of Python, that has the functions of the section. A row is

    Send Bsend: data, count, type, dest, tag, comm

for functions that take the same. An argument is a word of KINDS, which is also its name (a second
one of that name is tag2), and the way in which it goes:

    count       a value                            count*      a result
    comm&       a value that the function replaces
    dims[n]     n values; n is an expression of C  dims*[n]    room for n results; dims&[n] both

A row that has a kind with two types describes two functions, that with int and that with MPI_Count,
whose name ends in _c. A collective is also I... and ..._init. "-> type" names a result other than
int. rows.py reads this, and generate.py makes C of it; CODES are the letters by which src/entries.h
describes arguments.
"""

from __future__ import annotations

# c: written by hand in src/<room>.c, with MPI_Count if there are two forms
# python: a function of pscompy_mpi.<room>, named like the MPI function in lower case
# collective: described to one function of C (entries.h)
# alias: another name of a function       identity: a handle is its own number in Fortran
# data: not a function, but an address    absent: exported, says that it is not available
# missing: not exported, so that programs which look for it know
WHERE = ("c", "python", "collective", "alias", "identity", "data", "absent", "missing")

# Each line: the words; then the type, or the types with int and with MPI_Count; then the code.
KINDS_TEXT = """
n rank dest source tag root color key flag index keyval order reorder direction | int | i
indegree outdegree ndims nnodes dims periods coords remain neighbors edges degrees | int | i
sources destinations distributions arguments grid thread code buflen valuelen level | int | i
count size position blocklength stride blocklengths positions | int, MPI_Count | i
sizes subsizes starts send_count recv_count send_counts recv_counts | int, MPI_Count | i
unit send_displs recv_displs | int, MPI_Aint | i
bytes lb extent offsets | MPI_Aint, MPI_Count | l
aint | MPI_Aint | l
large | MPI_Count | l
comm | MPI_Comm | c
group | MPI_Group | g
type send_types recv_types send_type recv_type | MPI_Datatype | t
op | MPI_Op | o
errhandler | MPI_Errhandler | e
info | MPI_Info | f
request | MPI_Request | r
message | MPI_Message | m
win | MPI_Win | w
string | const char * | s
text | char | s
data send | const void * | p
buffer recv state | void * | p
base | void * | p
ints | const int * | p
weights | int * | p
ranges | int | i
strings argv | char ** | p
argc | int | p
status | const MPI_Status * | p
integers | MPI_Fint | i
query_fn | MPI_Grequest_query_function * | p
free_fn | MPI_Grequest_free_function * | p
cancel_fn | MPI_Grequest_cancel_function * | p
user_fn | MPI_User_function * | p
user_fn_c | MPI_User_function_c * | p
comm_copy | MPI_Comm_copy_attr_function * | p
comm_delete | MPI_Comm_delete_attr_function * | p
type_copy | MPI_Type_copy_attr_function * | p
type_delete | MPI_Type_delete_attr_function * | p
win_copy | MPI_Win_copy_attr_function * | p
win_delete | MPI_Win_delete_attr_function * | p
comm_handler | MPI_Comm_errhandler_function * | p
win_handler | MPI_Win_errhandler_function * | p
... | ... | p
"""
RESULTS = {"base": "void", "status": "MPI_Status"}

CODES = {
    "i": "int",
    "l": "MPI_Aint or MPI_Count",
    "c": "communicator",
    "g": "group",
    "t": "type",
    "o": "operation",
    "e": "error handler",
    "f": "info",
    "r": "request",
    "m": "message",
    "w": "window",
    "s": "text that ends with 0",
    "p": "address",
}

TABLE = """
== c message
Send Bsend Ssend Rsend: data, count, type, dest, tag, comm
Isend Ibsend Issend Irsend: data, count, type, dest, tag, comm, request*
Send_init Bsend_init Ssend_init Rsend_init: data, count, type, dest, tag, comm, request*
Recv: buffer, count, type, source, tag, comm, status*
Irecv Recv_init: buffer, count, type, source, tag, comm, request*
Sendrecv: data, count, type, dest, tag, buffer, count, type, source, tag, comm, status*
Isendrecv: data, count, type, dest, tag, buffer, count, type, source, tag, comm, request*
Sendrecv_replace: buffer, count, type, dest, tag, source, tag, comm, status*
Isendrecv_replace: buffer, count, type, dest, tag, source, tag, comm, request*
Buffer_attach: buffer, size
Buffer_detach: base*, size*
Buffer_flush:
Buffer_iflush: request*
Comm_attach_buffer: comm, buffer, size
Comm_detach_buffer: comm, base*, size*
Comm_flush_buffer: comm
Comm_iflush_buffer: comm, request*

== c probe
Probe: source, tag, comm, status*
Iprobe: source, tag, comm, flag*, status*
Mprobe: source, tag, comm, message*, status*
Improbe: source, tag, comm, flag*, message*, status*
Mrecv: buffer, count, type, message&, status*
Imrecv: buffer, count, type, message&, request*

== c request
Wait: request&, status*
Test: request&, flag*, status*
Waitall: n, request&[n], status*[n]
Testall: n, request&[n], flag*, status*[n]
Waitany: n, request&[n], index*, status*
Testany: n, request&[n], index*, flag*, status*
Waitsome Testsome: n, request&[n], n*, index*[n], status*[n]
Request_get_status: request, flag*, status*
Request_get_status_all: n, request[n], flag*, status*[n]
Request_get_status_any: n, request[n], index*, flag*, status*
Request_get_status_some: n, request[n], n*, index*[n], status*[n]
Start Request_free Cancel: request&
Startall: n, request&[n]
Grequest_start: query_fn, free_fn, cancel_fn, state, request*
Grequest_complete: request

== c status
Get_count Get_elements: status, type, count*
Status_set_elements: status&, type, count
Status_set_cancelled: status&, flag
Test_cancelled: status, flag*
Status_get_source Status_get_tag Status_get_error: status, n*
Status_set_source Status_set_tag Status_set_error: status&, n
Status_c2f: status, integers*[MPI_F_STATUS_SIZE]
Status_f2c: integers[MPI_F_STATUS_SIZE], status*

== c types
Type_size: type, size*
Type_get_extent Type_get_true_extent: type, lb*, extent*
Pack: data, count, type, buffer, size, position&, comm
Unpack: data, size, position&, buffer, count, type, comm
Pack_size: count, type, comm, size*
Pack_external: string, data, count, type, buffer, bytes, bytes&
Unpack_external: string, data, bytes, bytes&, buffer, count, type
Pack_external_size: string, count, type, bytes*

== c operation
Op_create: user_fn, flag, op*
Op_create_c: user_fn_c, flag, op*
Op_commutative: op, flag*
Op_free: op&
Reduce_local: data, buffer, count, type, op

== c error
Error_class: code, n*
Error_string: code, text*, n*
Add_error_class: code*
Add_error_code: n, code*
Add_error_string: code, string
Remove_error_class Remove_error_code Remove_error_string: code

== c handler
Comm_create_errhandler: comm_handler, errhandler*
Comm_get_errhandler: comm, errhandler*
Comm_set_errhandler: comm, errhandler
Errhandler_free: errhandler&
Comm_call_errhandler: comm, code
Win_create_errhandler: win_handler, errhandler*
Win_get_errhandler: win, errhandler*
Win_set_errhandler: win, errhandler
Win_call_errhandler: win, code

== c window
Win_fence: n, win
Win_lock: n, rank, n, win
Win_lock_all: n, win
Win_unlock: rank, win
Win_unlock_all Win_sync: win

== c environment
Init: argc&, argv&
Init_thread: argc&, argv&, thread, thread*
Finalize:
Initialized Finalized Is_thread_main: flag*
Query_thread: thread*
Abort: comm, code
Get_version: n*, n*
Get_library_version Get_processor_name: text*, n*
Wtime Wtick: -> double
Pcontrol: level, ...
Alloc_mem: aint, info, base*
Free_mem: buffer
Get_address: data, aint*
Aint_add Aint_diff: aint, aint -> MPI_Aint
Comm_rank Comm_size Comm_remote_size: comm, n*
Comm_test_inter: comm, flag*

== collective collective
Barrier: comm
Bcast: recv, count, type, root, comm
Reduce: send, recv, count, type, op, root, comm
Allreduce Scan Exscan Reduce_scatter_block: send, recv, count, type, op, comm
Reduce_scatter: send, recv, recv_counts[], type, op, comm
Gather Scatter: send, send_count, send_type, recv, recv_count, recv_type, root, comm
Gatherv: send, send_count, send_type, recv, recv_counts[], recv_displs[], recv_type, root, comm
Scatterv: send, send_counts[], send_displs[], send_type, recv, recv_count, recv_type, root, comm
Allgather Alltoall: send, send_count, send_type, recv, recv_count, recv_type, comm
Allgatherv: send, send_count, send_type, recv, recv_counts[], recv_displs[], recv_type, comm
Alltoallv: send, send_counts[], send_displs[], send_type, \
recv, recv_counts[], recv_displs[], recv_type, comm
Alltoallw: send, send_counts[], send_displs[], send_types[], \
recv, recv_counts[], recv_displs[], recv_types[], comm

== python communicators
Comm_dup: comm, comm*
Comm_dup_with_info: comm, info, comm*
Comm_idup: comm, comm*, request*
Comm_idup_with_info: comm, info, comm*, request*
Comm_create: comm, group, comm*
Comm_create_group: comm, group, tag, comm*
Comm_create_from_group: group, string, info, errhandler, comm*
Comm_split: comm, color, key, comm*
Comm_split_type: comm, n, key, info, comm*
Comm_free Comm_disconnect: comm&
Comm_compare: comm, comm, n*
Comm_group Comm_remote_group: comm, group*
Comm_get_name: comm, text*[MPI_MAX_OBJECT_NAME], n*
Comm_set_name: comm, string
Comm_get_info: comm, info*
Comm_set_info: comm, info
Comm_get_parent: comm*

== python intercommunicators
Intercomm_create: comm, rank, comm, rank, tag, comm*
Intercomm_create_from_groups: group, rank, group, rank, string, info, errhandler, comm*
Intercomm_merge: comm, flag, comm*

== python groups
Group_size Group_rank: group, n*
Group_compare: group, group, n*
Group_translate_ranks: group, n, rank[n], group, rank*[n]
Group_union Group_intersection Group_difference: group, group, group*
Group_incl Group_excl: group, n, rank[n], group*
Group_range_incl Group_range_excl: group, n, ranges[3 * n], group*
Group_free: group&

== python attributes
Comm_create_keyval: comm_copy, comm_delete, keyval*, state
Type_create_keyval: type_copy, type_delete, keyval*, state
Win_create_keyval: win_copy, win_delete, keyval*, state
Comm_free_keyval Type_free_keyval Win_free_keyval: keyval&
Comm_get_attr: comm, keyval, base*, flag*
Type_get_attr: type, keyval, base*, flag*
Win_get_attr: win, keyval, base*, flag*
Comm_set_attr: comm, keyval, state
Type_set_attr: type, keyval, state
Win_set_attr: win, keyval, state
Comm_delete_attr: comm, keyval
Type_delete_attr: type, keyval
Win_delete_attr: win, keyval

== python info
Info_create Get_hw_resource_info: info*
Info_create_env: n, strings, info*
Info_dup: info, info*
Info_free: info&
Info_set: info, string, string
Info_delete: info, string
Info_get: info, string, valuelen, text*[valuelen + 1], flag*
Info_get_valuelen: info, string, valuelen*, flag*
Info_get_string: info, string, buflen&, text*[*buflen], flag*
Info_get_nkeys: info, n*
Info_get_nthkey: info, n, text*[MPI_MAX_INFO_KEY]

== python types
Type_dup: type, type*
Type_commit Type_free: type&
Type_contiguous: count, type, type*
Type_vector: count, blocklength, stride, type, type*
Type_create_hvector: count, blocklength, bytes, type, type*
Type_indexed: count, blocklengths[count], positions[count], type, type*
Type_create_hindexed: count, blocklengths[count], offsets[count], type, type*
Type_create_indexed_block: count, blocklength, positions[count], type, type*
Type_create_hindexed_block: count, blocklength, offsets[count], type, type*
Type_create_struct: count, blocklengths[count], offsets[count], type[count], type*
Type_create_subarray: ndims, sizes[ndims], subsizes[ndims], starts[ndims], order, type, type*
Type_create_darray: n, rank, ndims, sizes[ndims], distributions[ndims], arguments[ndims], \
grid[ndims], order, type, type*
Type_create_resized: type, lb, extent, type*
Type_get_envelope: type, n*, n*, n*, n*
Type_get_envelope_c: type, large*, large*, large*, large*, n*
Type_get_contents: type, n, n, n, n*[n], aint*[n2], type*[n3]
Type_get_contents_c: type, large, large, large, large, \
n*[large], aint*[large2], large*[large3], type*[large4]
Type_get_name: type, text*[MPI_MAX_OBJECT_NAME], n*
Type_set_name: type, string

== python sized
Type_create_f90_integer: n, type*
Type_create_f90_real Type_create_f90_complex Type_match_size: n, n, type*
Type_get_value_index: type, type, type*

== python topologies
Topo_test: comm, n*
Dims_create: nnodes, ndims, dims&[ndims]
Cart_create: comm, ndims, dims[ndims], periods[ndims], reorder, comm*
Cartdim_get: comm, ndims*
Cart_get: comm, ndims, dims*[ndims], periods*[ndims], coords*[ndims]
Cart_rank: comm, ints, rank*
Cart_coords: comm, rank, ndims, coords*[ndims]
Cart_shift: comm, direction, n, source*, dest*
Cart_sub: comm, ints, comm*
Cart_map: comm, ndims, dims[ndims], periods[ndims], rank*
Graph_create: comm, nnodes, index[nnodes], ints, reorder, comm*
Graphdims_get: comm, nnodes*, n*
Graph_get: comm, nnodes, n, index*[nnodes], edges*[n]
Graph_map: comm, nnodes, index[nnodes], ints, rank*
Graph_neighbors_count: comm, rank, n*
Graph_neighbors: comm, rank, n, neighbors*[n]

== python windows
Win_allocate_shared: aint, unit, info, comm, base*, win*
Win_shared_query: win, rank, aint*, unit*, base*
Win_free: win&
Win_get_group: win, group*
Win_get_info: win, info*
Win_set_info: win, info
Win_get_name: win, text*[MPI_MAX_OBJECT_NAME], n*
Win_set_name: win, string

== alias
Type_size_x: Type_size_c
Type_get_extent_x: Type_get_extent_c
Type_get_true_extent_x: Type_get_true_extent_c
Get_elements_x: Get_elements_c
Status_set_elements_x: Status_set_elements_c
Attr_get: Comm_get_attr
Attr_put: Comm_set_attr
Attr_delete: Comm_delete_attr
Keyval_create: Comm_create_keyval
Keyval_free: Comm_free_keyval
Errhandler_create: Comm_create_errhandler
Errhandler_get: Comm_get_errhandler
Errhandler_set: Comm_set_errhandler
Address: Get_address
Type_hvector: Type_create_hvector
Type_hindexed: Type_create_hindexed
Type_struct: Type_create_struct

== identity
Comm_c2f Comm_f2c Comm_toint Comm_fromint
Group_c2f Group_f2c Group_toint Group_fromint
Type_c2f Type_f2c Type_toint Type_fromint
Op_c2f Op_f2c Op_toint Op_fromint
Errhandler_c2f Errhandler_f2c Errhandler_toint Errhandler_fromint
Info_c2f Info_f2c Info_toint Info_fromint
Request_c2f Request_f2c Request_toint Request_fromint
Message_c2f Message_f2c Message_toint Message_fromint
Win_c2f Win_f2c Win_toint Win_fromint

== data
UNWEIGHTED WEIGHTS_EMPTY

== absent neighbours
Dist_graph_create_adjacent Dist_graph_create Dist_graph_neighbors_count Dist_graph_neighbors
Neighbor_allgather Ineighbor_allgather Neighbor_allgather_init
Neighbor_allgatherv Ineighbor_allgatherv Neighbor_allgatherv_init
Neighbor_alltoall Ineighbor_alltoall Neighbor_alltoall_init
Neighbor_alltoallv Ineighbor_alltoallv Neighbor_alltoallv_init
Neighbor_alltoallw Ineighbor_alltoallw Neighbor_alltoallw_init

== absent ports
Open_port Close_port Publish_name Unpublish_name Lookup_name
Comm_accept Comm_connect Comm_join Comm_spawn Comm_spawn_multiple

== absent windows
Accumulate Compare_and_swap Fetch_and_op Get Get_accumulate Put
Raccumulate Rget Rget_accumulate Rput
Win_allocate Win_attach Win_complete Win_create Win_create_dynamic Win_detach
Win_flush Win_flush_all Win_flush_local Win_flush_local_all Win_post Win_start Win_test Win_wait

== absent files
Register_datarep File_call_errhandler File_close File_create_errhandler File_delete File_get_amode
File_get_atomicity File_get_byte_offset File_get_errhandler File_get_group File_get_info
File_get_position File_get_position_shared File_get_size File_get_type_extent File_get_view
File_iread File_iread_at File_iread_shared File_iwrite File_iwrite_at File_iwrite_shared File_open
File_preallocate File_read File_read_all File_read_all_begin File_read_all_end File_read_at
File_read_at_all File_read_at_all_begin File_read_at_all_end File_read_ordered
File_read_ordered_begin File_read_ordered_end File_read_shared File_seek File_seek_shared
File_set_atomicity File_set_errhandler File_set_info File_set_size File_set_view File_sync
File_write File_write_all File_write_all_begin File_write_all_end File_write_at File_write_at_all
File_write_at_all_begin File_write_at_all_end File_write_ordered File_write_ordered_begin
File_write_ordered_end File_write_shared

== missing files
File_iread_all File_iread_at_all File_iwrite_all File_iwrite_at_all
File_c2f File_f2c File_toint File_fromint

== missing sessions
Session_init Session_finalize Session_get_num_psets Session_get_nth_pset Session_get_info
Session_get_pset_info Session_create_errhandler Session_get_errhandler Session_set_errhandler
Session_call_errhandler Session_attach_buffer Session_detach_buffer Session_flush_buffer
Session_iflush_buffer Session_c2f Session_f2c Session_toint Session_fromint
Group_from_session_pset

== missing partitions
Psend_init Precv_init Pready Pready_range Pready_list Parrived

== missing abi
Abi_get_version Abi_get_info Abi_get_fortran_info
"""
