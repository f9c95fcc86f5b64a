"""Declarations of libquire for ctypes: written by make_abi.py from include/quire.h, not by hand."""

import ctypes as C

QUIRE_VERSION_STRING = "0.1.0"
QUIRE_BLOCK_BYTES_MAX = 1048576
QUIRE_BLOCK_BYTES_MIN = 4096
QUIRE_CACHE_CANDIDATES_MAX = 16
QUIRE_CACHE_TOKEN_BYTES = 64
QUIRE_DIM_MAX = 65536
QUIRE_KEY_BYTES_MAX = 65535
QUIRE_K_MAX = 1000000
QUIRE_ROWS_MAX = 4294967280
QUIRE_VERSION_MAJOR = 0
QUIRE_VERSION_MINOR = 1
QUIRE_VERSION_PATCH = 0

# name: number, as QUIRE_E<name> = -number
ERRORS = {
    "INVALID": (1, "invalid argument"),
    "RANGE": (2, "value out of range"),
    "DIM": (3, "wrong dimension"),
    "TYPE": (4, "wrong element type"),
    "NOTFINITE": (5, "a vector holds NaN or infinity"),
    "ZEROVEC": (6, "a zero vector has no direction under this metric"),
    "NOTFOUND": (7, "not found"),
    "EXISTS": (8, "exists already"),
    "LIMIT": (9, "a limit was reached"),
    "FORMAT": (20, "not a file of the expected format"),
    "VERSION": (21, "format version not supported"),
    "TRUNCATED": (22, "file is shorter than it says"),
    "OVERSIZED": (23, "file is longer than it says"),
    "CORRUPT": (24, "checksum or structure is wrong"),
    "PARSE": (25, "text could not be parsed"),
    "IO": (40, "input/output error"),
    "NOSPACE": (41, "no space left on device"),
    "PERM": (42, "permission denied"),
    "NOFILE": (43, "no such file or directory"),
    "SHORTREAD": (44, "fewer bytes were read than asked for"),
    "ADDRINUSE": (45, "address in use"),
    "NET": (46, "network error"),
    "UNSUPPORTED": (60, "not supported here"),
    "BUSY": (61, "busy"),
    "CANCELLED": (62, "cancelled"),
    "CLOSED": (63, "closed"),
    "TIMEOUT": (64, "timed out"),
    "STALE": (65, "what the call relied on has changed meanwhile"),
    "NOMEM": (80, "out of memory"),
    "INTERNAL": (99, "internal error"),
}

ENUMS = {
    "quire_metric": {
        "QUIRE_METRIC_L2": 0,
        "QUIRE_METRIC_COSINE": 1,
        "QUIRE_METRIC_IP": 2,
    },
    "quire_type": {
        "QUIRE_TYPE_F32": 0,
        "QUIRE_TYPE_F16": 1,
        "QUIRE_TYPE_I8": 2,
        "QUIRE_TYPE_U8": 3,
        "QUIRE_TYPE_BF16": 4,
    },
    "quire_slot": {
        "QUIRE_SLOT_AUTO": 0,
        "QUIRE_SLOT_F32": 1,
        "QUIRE_SLOT_F16": 2,
        "QUIRE_SLOT_I8": 3,
        "QUIRE_SLOT_U8": 4,
        "QUIRE_SLOT_Q8": 5,
        "QUIRE_SLOT_BF16": 6,
    },
    "quire_index_kind": {
        "QUIRE_INDEX_PAGEGRAPH": 0,
        "QUIRE_INDEX_AUTO": 1,
        "QUIRE_INDEX_SPANN": 2,
    },
    "quire_engine_kind": {
        "QUIRE_ENGINE_AUTO": 0,
        "QUIRE_ENGINE_URING": 1,
        "QUIRE_ENGINE_THREADS": 2,
    },
    "quire_column_type": {
        "QUIRE_COLUMN_LEARNT": 0,
        "QUIRE_COLUMN_INTEGER": 1,
        "QUIRE_COLUMN_FLOAT": 2,
        "QUIRE_COLUMN_STRING": 3,
        "QUIRE_COLUMN_BOOL": 4,
        "QUIRE_COLUMN_LIST": 5,
        "QUIRE_COLUMN_TIMESTAMP": 6,
    },
    "quire_edge_codes": {
        "QUIRE_EDGE_CODES_AUTO": 0,
        "QUIRE_EDGE_CODES_NO": 1,
        "QUIRE_EDGE_CODES_YES": 2,
    },
    "quire_distance": {
        "QUIRE_DISTANCE_EXACT": 0,
        "QUIRE_DISTANCE_ESTIMATE": 1,
    },
    "quire_plan": {
        "QUIRE_PLAN_WALK": 0,
        "QUIRE_PLAN_EXACT": 1,
        "QUIRE_PLAN_EMPTY": 2,
        "QUIRE_PLAN_BLOCKS": 3,
        "QUIRE_PLAN_SCAN": 4,
        "QUIRE_PLAN_FILTERED": 5,
        "QUIRE_PLAN_MEMORY": 6,
    },
    "quire_durability": {
        "QUIRE_DURABLE_EVERYSEC": 0,
        "QUIRE_DURABLE_ALWAYS": 1,
        "QUIRE_DURABLE_NO": 2,
    },
    "quire_with": {
        "QUIRE_WITH_ATTRIBUTES": 1,
        "QUIRE_WITH_VECTORS": 2,
    },
    "quire_cache_status": {
        "QUIRE_CACHE_MISS": 0,
        "QUIRE_CACHE_HIT": 1,
        "QUIRE_CACHE_EXACT": 2,
        "QUIRE_CACHE_STALE": 3,
        "QUIRE_CACHE_NEGATIVE": 4,
        "QUIRE_CACHE_BYPASS": 5,
        "QUIRE_CACHE_AUDIT": 6,
        "QUIRE_CACHE_VECTOR": 7,
    },
    "quire_cache_put_outcome": {
        "QUIRE_CACHE_STORED": 0,
        "QUIRE_CACHE_REPLACED": 1,
        "QUIRE_CACHE_EXISTS": 2,
        "QUIRE_CACHE_NOT_ADMITTED": 3,
        "QUIRE_CACHE_OUTDATED": 4,
        "QUIRE_CACHE_NO_ROOM": 5,
        "QUIRE_CACHE_OFF": 6,
    },
    "quire_cache_by": {
        "QUIRE_CACHE_BY_ID": 1,
        "QUIRE_CACHE_BY_TAG": 2,
        "QUIRE_CACHE_BY_CATEGORY": 3,
        "QUIRE_CACHE_BY_SCOPE": 4,
        "QUIRE_CACHE_BY_MODEL": 5,
        "QUIRE_CACHE_BY_ENCODER": 6,
        "QUIRE_CACHE_BY_NEAR": 7,
        "QUIRE_CACHE_BY_BEFORE": 8,
        "QUIRE_CACHE_BY_ALL": 9,
    },
}


class quire_error(C.Structure):
    _fields_ = [
        ("code", C.c_int),
        ("message", C.c_char * 384),
        ("where", C.c_void_p),
    ]


class quire_bytes(C.Structure):
    _fields_ = [
        ("data", C.c_void_p),
        ("n_bytes", C.c_size_t),
    ]


class quire_pair(C.Structure):
    _fields_ = [
        ("key", quire_bytes),
        ("value", quire_bytes),
    ]


class quire_column(C.Structure):
    _fields_ = [
        ("name", C.c_void_p),
        ("type", C.c_int),
        ("indexed", C.c_bool),
    ]


class quire_build_options(C.Structure):
    _fields_ = [
        ("struct_bytes", C.c_size_t),
        ("metric", C.c_int),
        ("index", C.c_int),
        ("slot", C.c_int),
        ("block_bytes", C.c_uint32),
        ("code_bits", C.c_uint),
        ("degree", C.c_uint),
        ("build_beam", C.c_uint),
        ("threads", C.c_uint),
        ("seed", C.c_uint64),
        ("memory_bytes", C.c_uint64),
        ("edge_codes", C.c_int),
        ("list_rows", C.c_uint32),
        ("replicas", C.c_float),
        ("keys", C.c_void_p),
        ("key_bytes", C.c_void_p),
        ("attributes", C.c_void_p),
        ("attribute_bytes", C.c_void_p),
        ("columns", C.c_void_p),
        ("n_columns", C.c_uint32),
        ("tenants", C.c_void_p),
        ("progress", C.c_void_p),
        ("context", C.c_void_p),
        ("build_memory_bytes", C.c_uint64),
        ("resume", C.c_bool),
        ("calibration_queries", C.c_uint32),
    ]


class quire_input(C.Structure):
    _fields_ = [
        ("rows", C.c_uint64),
        ("dim", C.c_uint32),
        ("type", C.c_int),
        ("vectors", C.c_void_p),
        ("read", C.c_void_p),
        ("context", C.c_void_p),
    ]


class quire_open_options(C.Structure):
    _fields_ = [
        ("struct_bytes", C.c_size_t),
        ("memory_bytes", C.c_uint64),
        ("no_cache", C.c_bool),
        ("engine", C.c_int),
        ("reads_max", C.c_uint),
    ]


class quire_info(C.Structure):
    _fields_ = [
        ("rows", C.c_uint64),
        ("dim", C.c_uint32),
        ("type", C.c_int),
        ("metric", C.c_int),
        ("index", C.c_int),
        ("slot", C.c_int),
        ("block_bytes", C.c_uint32),
        ("blocks", C.c_uint32),
        ("slots_per_block", C.c_uint32),
        ("lists", C.c_uint32),
        ("list_entries", C.c_uint64),
        ("code_bits", C.c_uint),
        ("edge_codes", C.c_bool),
        ("resident_bytes", C.c_uint64),
        ("cache_bytes", C.c_uint64),
        ("memory_bytes", C.c_uint64),
        ("index_bytes", C.c_uint64),
        ("raw_bytes", C.c_uint64),
        ("direct_io", C.c_bool),
        ("user_keys", C.c_bool),
        ("format_version", C.c_uint),
    ]


class quire_search_options(C.Structure):
    _fields_ = [
        ("struct_bytes", C.c_size_t),
        ("k", C.c_uint32),
        ("recall", C.c_float),
        ("effort", C.c_uint32),
        ("reads_max", C.c_uint32),
        ("exact", C.c_bool),
        ("filter", C.c_void_p),
        ("filter_bytes", C.c_size_t),
        ("filter_effort", C.c_uint32),
        ("tenants", C.c_void_p),
        ("n_tenants", C.c_uint32),
        ("dim", C.c_uint32),
        ("distance", C.c_int),
        ("limited", C.c_bool),
        ("farthest", C.c_float),
    ]


class quire_hit(C.Structure):
    _fields_ = [
        ("id", C.c_uint64),
        ("row", C.c_uint32),
        ("distance", C.c_float),
        ("deviation", C.c_float),
    ]


class quire_search_stats(C.Structure):
    _fields_ = [
        ("plan", C.c_int),
        ("switched", C.c_bool),
        ("matches", C.c_uint64),
        ("reads_expected", C.c_uint32),
        ("reads", C.c_uint32),
        ("cached", C.c_uint32),
        ("bytes", C.c_uint64),
        ("rounds", C.c_uint32),
        ("rows_scored", C.c_uint32),
        ("codes_scored", C.c_uint32),
        ("effort", C.c_uint32),
        ("estimated", C.c_uint32),
        ("cpu_ns", C.c_uint64),
        ("latency_ns", C.c_uint64),
        ("exact", C.c_bool),
        ("complete", C.c_bool),
    ]


class quire_loop_options(C.Structure):
    _fields_ = [
        ("struct_bytes", C.c_size_t),
        ("engine", C.c_int),
        ("reads_max", C.c_uint),
        ("inflight", C.c_uint),
    ]


class quire_collection_options(C.Structure):
    _fields_ = [
        ("struct_bytes", C.c_size_t),
        ("create", C.c_bool),
        ("dim", C.c_uint32),
        ("type", C.c_int),
        ("metric", C.c_int),
        ("slot", C.c_int),
        ("block_bytes", C.c_uint32),
        ("code_bits", C.c_uint),
        ("index", C.c_int),
        ("durability", C.c_int),
        ("memtable_bytes", C.c_uint64),
        ("memory_bytes", C.c_uint64),
        ("disk_bytes", C.c_uint64),
        ("threads", C.c_uint),
        ("engine", C.c_int),
        ("reads_max", C.c_uint),
        ("log", C.c_void_p),
        ("context", C.c_void_p),
        ("columns", C.c_void_p),
        ("n_columns", C.c_uint32),
        ("tenants", C.c_bool),
    ]


class quire_where(C.Structure):
    _fields_ = [
        ("filter", C.c_void_p),
        ("filter_bytes", C.c_size_t),
        ("tenants", C.c_void_p),
        ("n_tenants", C.c_uint32),
    ]


class quire_element(C.Structure):
    _fields_ = [
        ("key", C.c_void_p),
        ("key_bytes", C.c_size_t),
        ("distance", C.c_float),
        ("deviation", C.c_float),
        ("attributes", C.c_void_p),
        ("attribute_bytes", C.c_size_t),
        ("vector", C.c_void_p),
    ]


class quire_collection_info(C.Structure):
    _fields_ = [
        ("elements", C.c_uint64),
        ("raw_bytes", C.c_uint64),
        ("dim", C.c_uint32),
        ("type", C.c_int),
        ("metric", C.c_int),
        ("slot", C.c_int),
        ("index", C.c_int),
        ("memory_rows", C.c_uint64),
        ("memory_bytes", C.c_uint64),
        ("segments", C.c_uint64),
        ("segment_rows", C.c_uint64),
        ("dead_rows", C.c_uint64),
        ("resident_bytes", C.c_uint64),
        ("disk_bytes", C.c_uint64),
        ("recovery_us", C.c_uint64),
        ("replayed_records", C.c_uint64),
    ]


class quire_cache_options(C.Structure):
    _fields_ = [
        ("struct_bytes", C.c_size_t),
        ("create", C.c_bool),
        ("dim", C.c_uint32),
        ("type", C.c_int),
        ("encoder", C.c_void_p),
        ("memory_bytes", C.c_uint64),
        ("disk_bytes", C.c_uint64),
        ("scope_keys", C.c_void_p),
        ("n_scope_keys", C.c_uint32),
        ("require_scope", C.c_bool),
        ("durability", C.c_int),
        ("guard_folder", C.c_void_p),
        ("engine", C.c_int),
        ("seed", C.c_uint64),
        ("log", C.c_void_p),
        ("context", C.c_void_p),
        ("seal_rows", C.c_uint32),
    ]


class quire_cache_query(C.Structure):
    _fields_ = [
        ("category", quire_bytes),
        ("scope", C.c_void_p),
        ("n_scope", C.c_uint32),
        ("hash", quire_bytes),
        ("compat", quire_bytes),
        ("encoder", quire_bytes),
        ("vector", C.c_void_p),
        ("text", quire_bytes),
        ("similarity", C.c_double),
        ("max_age_ms", C.c_uint64),
        ("need", C.c_void_p),
        ("n_need", C.c_uint32),
        ("wait_ms", C.c_uint64),
        ("no_lease", C.c_bool),
        ("stale_ok", C.c_bool),
        ("explain", C.c_bool),
        ("probe", C.c_bool),
        ("on_error", C.c_bool),
    ]


class quire_cache_candidate(C.Structure):
    _fields_ = [
        ("id", C.c_uint64),
        ("similarity", C.c_float),
        ("verdict", C.c_void_p),
        ("why", C.c_char * 160),
    ]


class quire_cache_answer(C.Structure):
    _fields_ = [
        ("status", C.c_int),
        ("reason", C.c_void_p),
        ("id", C.c_uint64),
        ("similarity", C.c_double),
        ("threshold", C.c_double),
        ("guard", C.c_void_p),
        ("guard_why", C.c_char * 160),
        ("guards_skipped", C.c_bool),
        ("age_ms", C.c_uint64),
        ("ttl_ms", C.c_uint64),
        ("lease", C.c_char * 64),
        ("lease_ms", C.c_uint64),
        ("audit", C.c_uint64),
        ("waited_ms", C.c_uint64),
        ("n_candidates", C.c_uint32),
        ("candidates", quire_cache_candidate * 16),
        ("value", quire_bytes),
        ("n_chunks", C.c_uint32),
        ("chunks", C.c_void_p),
        ("text", quire_bytes),
        ("model", quire_bytes),
        ("tokens_in", C.c_uint32),
        ("tokens_out", C.c_uint32),
        ("llm_ms", C.c_uint32),
        ("cost", C.c_double),
        ("memory", C.c_void_p),
    ]


class quire_cache_entry(C.Structure):
    _fields_ = [
        ("category", quire_bytes),
        ("lease", quire_bytes),
        ("scope", C.c_void_p),
        ("n_scope", C.c_uint32),
        ("hash", quire_bytes),
        ("compat", quire_bytes),
        ("encoder", quire_bytes),
        ("vector", C.c_void_p),
        ("text", quire_bytes),
        ("chunks", C.c_void_p),
        ("n_chunks", C.c_uint32),
        ("ttl_ms", C.c_uint64),
        ("tags", C.c_void_p),
        ("n_tags", C.c_uint32),
        ("model", quire_bytes),
        ("tokens_in", C.c_uint32),
        ("tokens_out", C.c_uint32),
        ("llm_ms", C.c_uint32),
        ("cost", C.c_double),
        ("pin", C.c_bool),
        ("if_new", C.c_bool),
    ]


class quire_cache_put_result(C.Structure):
    _fields_ = [
        ("outcome", C.c_int),
        ("id", C.c_uint64),
        ("expire_ms", C.c_uint64),
        ("evicted", C.c_uint32),
        ("woken", C.c_uint32),
        ("lsn", C.c_uint64),
    ]


class quire_cache_audit(C.Structure):
    _fields_ = [
        ("number", C.c_uint64),
        ("id", C.c_uint64),
        ("similarity", C.c_double),
        ("category", quire_bytes),
        ("text", quire_bytes),
        ("entry_text", quire_bytes),
        ("entry_value", quire_bytes),
        ("memory", C.c_void_p),
    ]


class quire_cache_selector(C.Structure):
    _fields_ = [
        ("by", C.c_int),
        ("ids", C.c_void_p),
        ("names", C.c_void_p),
        ("n", C.c_uint32),
        ("vector", C.c_void_p),
        ("similarity", C.c_double),
        ("age_ms", C.c_uint64),
    ]


class quire_cache_stats(C.Structure):
    _fields_ = [
        ("entries", C.c_uint64),
        ("memory_bytes", C.c_uint64),
        ("disk_bytes", C.c_uint64),
        ("document_bytes", C.c_uint64),
        ("pinned", C.c_uint64),
        ("requests", C.c_uint64),
        ("hits", C.c_uint64),
        ("exact", C.c_uint64),
        ("stale", C.c_uint64),
        ("audits", C.c_uint64),
        ("misses", C.c_uint64),
        ("negative", C.c_uint64),
        ("bypassed", C.c_uint64),
        ("waited", C.c_uint64),
        ("puts", C.c_uint64),
        ("stored", C.c_uint64),
        ("not_admitted", C.c_uint64),
        ("outdated", C.c_uint64),
        ("no_room", C.c_uint64),
        ("evicted_own", C.c_uint64),
        ("evicted_cache", C.c_uint64),
        ("expired", C.c_uint64),
        ("invalidated", C.c_uint64),
        ("replaced", C.c_uint64),
        ("removed", C.c_uint64),
        ("lost", C.c_uint64),
        ("guarded", C.c_uint64),
        ("vetoed", C.c_uint64),
        ("labels", C.c_uint64),
        ("false_hits", C.c_uint64),
        ("feedback_good", C.c_uint64),
        ("feedback_bad", C.c_uint64),
        ("tokens_saved", C.c_uint64),
        ("llm_ms_saved", C.c_uint64),
        ("cost_saved", C.c_double),
        ("cost_audits", C.c_double),
        ("threshold", C.c_double),
        ("lam", C.c_double),
        ("get_p50_us", C.c_double),
        ("get_p99_us", C.c_double),
        ("get_p999_us", C.c_double),
        ("put_p50_us", C.c_double),
        ("put_p99_us", C.c_double),
        ("put_p999_us", C.c_double),
        ("sealed_entries", C.c_uint64),
        ("sealed_segments", C.c_uint64),
        ("sealed_disk_bytes", C.c_uint64),
        ("sealed_memory_bytes", C.c_uint64),
    ]


class quire_cache_point(C.Structure):
    _fields_ = [
        ("similarity", C.c_double),
        ("served", C.c_double),
        ("wrong", C.c_double),
        ("bound", C.c_double),
    ]


class quire_cache_tune(C.Structure):
    _fields_ = [
        ("threshold", C.c_double),
        ("delta", C.c_double),
        ("requests", C.c_uint64),
        ("labels", C.c_uint64),
        ("n", C.c_uint32),
        ("points", quire_cache_point * 401),
    ]


class quire_verify_report(C.Structure):
    _fields_ = [
        ("files", C.c_uint64),
        ("sections", C.c_uint64),
        ("blocks", C.c_uint64),
        ("rows", C.c_uint64),
        ("edges", C.c_uint64),
        ("keys", C.c_uint64),
        ("lists", C.c_uint64),
        ("list_entries", C.c_uint64),
        ("rows_reachable", C.c_uint64),
        ("rows_by_edges", C.c_uint64),
        ("blocks_without_entry", C.c_uint64),
        ("findings", C.c_uint64),
        ("code_error", C.c_double),
        ("code_error_max", C.c_double),
    ]


class quire_calibration_point(C.Structure):
    _fields_ = [
        ("k", C.c_uint32),
        ("effort", C.c_uint32),
        ("recall", C.c_float),
        ("reads", C.c_float),
        ("distance", C.c_int),
    ]


STRUCTS = (quire_error, quire_bytes, quire_pair, quire_column, quire_build_options, quire_input, quire_open_options, quire_info, quire_search_options, quire_hit, quire_search_stats, quire_loop_options, quire_collection_options, quire_where, quire_element, quire_collection_info, quire_cache_options, quire_cache_query, quire_cache_candidate, quire_cache_answer, quire_cache_entry, quire_cache_put_result, quire_cache_audit, quire_cache_selector, quire_cache_stats, quire_cache_point, quire_cache_tune, quire_verify_report, quire_calibration_point,)

quire_search_callback = C.CFUNCTYPE(None, C.c_void_p, C.c_int, C.c_void_p, C.c_uint32, C.c_void_p, C.c_void_p)

# name: (returned, parameters)
FUNCTIONS = {
    "quire_error_name": (C.c_char_p, [C.c_int]),
    "quire_error_text": (C.c_char_p, [C.c_int]),
    "quire_version": (C.c_char_p, []),
    "quire_type_bytes": (C.c_size_t, [C.c_int]),
    "quire_type_name": (C.c_char_p, [C.c_int]),
    "quire_metric_name": (C.c_char_p, [C.c_int]),
    "quire_slot_name": (C.c_char_p, [C.c_int]),
    "quire_index_kind_name": (C.c_char_p, [C.c_int]),
    "quire_column_type_name": (C.c_char_p, [C.c_int]),
    "quire_build_options_init": (None, [C.c_void_p]),
    "quire_build": (C.c_int, [C.c_void_p, C.c_void_p, C.c_uint64, C.c_uint32, C.c_int, C.c_void_p, C.c_void_p]),
    "quire_build_from": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_build_done": (C.c_double, [C.c_void_p, C.c_uint64, C.c_uint64]),
    "quire_open_options_init": (None, [C.c_void_p]),
    "quire_open": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_close": (None, [C.c_void_p]),
    "quire_get_info": (None, [C.c_void_p, C.c_void_p]),
    "quire_search_options_init": (None, [C.c_void_p]),
    "quire_plan_name": (C.c_char_p, [C.c_int]),
    "quire_search": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_search_batch": (C.c_int, [C.c_void_p, C.c_void_p, C.c_uint64, C.c_void_p, C.c_uint, C.c_uint, C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_loop_options_init": (None, [C.c_void_p]),
    "quire_loop_create": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_loop_destroy": (None, [C.c_void_p]),
    "quire_loop_search": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_loop_poll": (C.c_int, [C.c_void_p, C.c_uint, C.c_uint64]),
    "quire_loop_fd": (C.c_int, [C.c_void_p]),
    "quire_lookup": (C.c_int, [C.c_void_p, C.c_void_p, C.c_size_t, C.c_void_p, C.c_void_p]),
    "quire_key": (C.c_int, [C.c_void_p, C.c_uint32, C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_vector": (C.c_int, [C.c_void_p, C.c_uint32, C.c_void_p, C.c_void_p]),
    "quire_attributes": (C.c_int, [C.c_void_p, C.c_uint32, C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_collection_options_init": (None, [C.c_void_p]),
    "quire_collection_open": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_collection_close": (C.c_int, [C.c_void_p, C.c_void_p]),
    "quire_put": (C.c_int, [C.c_void_p, C.c_void_p, C.c_size_t, C.c_void_p, C.c_void_p, C.c_size_t, C.c_void_p, C.c_void_p]),
    "quire_put_granted": (C.c_int, [C.c_void_p, C.c_void_p, C.c_size_t, C.c_void_p, C.c_void_p, C.c_size_t, C.c_void_p, C.c_uint32, C.c_void_p, C.c_void_p]),
    "quire_remove": (C.c_int, [C.c_void_p, C.c_void_p, C.c_size_t, C.c_void_p]),
    "quire_set_attributes": (C.c_int, [C.c_void_p, C.c_void_p, C.c_size_t, C.c_void_p, C.c_size_t, C.c_void_p]),
    "quire_get": (C.c_int, [C.c_void_p, C.c_void_p, C.c_size_t, C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_grant": (C.c_int, [C.c_void_p, C.c_void_p, C.c_size_t, C.c_void_p, C.c_uint32, C.c_void_p, C.c_void_p]),
    "quire_revoke": (C.c_int, [C.c_void_p, C.c_void_p, C.c_size_t, C.c_void_p, C.c_uint32, C.c_void_p, C.c_void_p]),
    "quire_drop_tenant": (C.c_int, [C.c_void_p, C.c_void_p, C.c_size_t, C.c_void_p, C.c_void_p]),
    "quire_count": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_remove_where": (C.c_int, [C.c_void_p, C.c_void_p, C.c_bool, C.c_void_p, C.c_void_p]),
    "quire_each_key": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_collection_search": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p, C.c_uint, C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_result_count": (C.c_uint32, [C.c_void_p]),
    "quire_result_element": (None, [C.c_void_p, C.c_uint32, C.c_void_p]),
    "quire_result_free": (None, [C.c_void_p]),
    "quire_snapshot_open": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_snapshot_count": (C.c_uint64, [C.c_void_p]),
    "quire_snapshot_close": (None, [C.c_void_p]),
    "quire_checkpoint": (C.c_int, [C.c_void_p, C.c_void_p]),
    "quire_seal": (C.c_int, [C.c_void_p, C.c_void_p]),
    "quire_compact": (C.c_int, [C.c_void_p, C.c_void_p]),
    "quire_backup": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_collection_get_info": (None, [C.c_void_p, C.c_void_p]),
    "quire_cache_options_init": (None, [C.c_void_p]),
    "quire_cache_open": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_cache_close": (C.c_int, [C.c_void_p, C.c_void_p]),
    "quire_cache_stop": (C.c_int, [C.c_void_p, C.c_void_p]),
    "quire_cache_set_category": (C.c_int, [C.c_void_p, quire_bytes, C.c_void_p, C.c_uint32, C.c_void_p]),
    "quire_cache_drop_category": (C.c_int, [C.c_void_p, quire_bytes, C.c_void_p]),
    "quire_cache_status_name": (C.c_char_p, [C.c_int]),
    "quire_cache_get": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_cache_answer_free": (None, [C.c_void_p]),
    "quire_cache_put_outcome_name": (C.c_char_p, [C.c_int]),
    "quire_cache_put": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_cache_negative": (C.c_int, [C.c_void_p, C.c_void_p, C.c_uint64, quire_bytes, C.c_void_p]),
    "quire_cache_fail": (C.c_int, [C.c_void_p, quire_bytes, C.c_void_p]),
    "quire_cache_renew": (C.c_int, [C.c_void_p, quire_bytes, C.c_uint64, C.c_void_p, C.c_void_p]),
    "quire_cache_feedback": (C.c_int, [C.c_void_p, C.c_uint64, C.c_bool, C.c_double, C.c_void_p]),
    "quire_cache_audit_get": (C.c_int, [C.c_void_p, C.c_uint64, C.c_void_p, C.c_void_p]),
    "quire_cache_audit_pop": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_cache_audit_free": (None, [C.c_void_p]),
    "quire_cache_audit_put": (C.c_int, [C.c_void_p, C.c_uint64, C.c_bool, C.c_void_p]),
    "quire_cache_load": (C.c_int, [C.c_void_p, quire_bytes, C.c_double, C.c_uint64, C.c_void_p]),
    "quire_cache_invalidate": (C.c_int, [C.c_void_p, C.c_void_p, C.c_bool, C.c_void_p, C.c_void_p]),
    "quire_cache_remove": (C.c_int, [C.c_void_p, C.c_uint64, C.c_void_p]),
    "quire_cache_touch": (C.c_int, [C.c_void_p, C.c_uint64, C.c_uint64, C.c_void_p]),
    "quire_cache_pin": (C.c_int, [C.c_void_p, C.c_uint64, C.c_bool, C.c_void_p]),
    "quire_cache_get_stats": (C.c_int, [C.c_void_p, quire_bytes, C.c_void_p, C.c_void_p]),
    "quire_cache_tune": (C.c_int, [C.c_void_p, quire_bytes, C.c_double, C.c_void_p, C.c_void_p]),
    "quire_cache_export": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_cache_import": (C.c_int, [C.c_void_p, C.c_void_p, C.c_size_t, C.c_void_p]),
    "quire_verify": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p]),
    "quire_calibration": (C.c_uint32, [C.c_void_p, C.c_void_p, C.c_uint32]),
}
