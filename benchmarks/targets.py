"""All measures: names, targets, and the figures of peers."""

from dataclasses import dataclass
from typing import Final

SOURCES: Final = {
    "OpenClaw": "OpenClaw 2026.9.6, QuickJS executor, measured on a 2-core machine",
    "Codex": "Codex code-mode host 0.166.0, wall p50, measured on a 2-core machine",
    "UTCP": "UTCP code-mode 1.2.12, wall p50, measured on a 2-core machine",
    "FastMCP": "FastMCP CodeMode 4.1.2 with Monty, wall p50, measured on a 2-core machine",
    "pydantic-ai": "pydantic-ai harness 0.62 with Monty, wall p50, measured on a 2-core machine",
    "LiteLLM": "LiteLLM proxy, wall p50 of a turn, measured on a busy 2-core machine",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A measure; without bounds, it is informational."""

    label: str
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    peer: str = ""
    """The figures of peers, by the keys of `SOURCES`."""

    @property
    def reach(self) -> str:
        match self.at_least, self.at_most:
            case None, None:
                return ""
            case None, most:
                return f"<= {most:g}"
            case least, None:
                return f">= {least:g}"
            case least, most:
                return f"{least:g} to {most:g}"

    def is_met_by(self, value: float) -> bool | None:
        """None for a measure without bounds."""
        if self.at_least is None and self.at_most is None:
            return None
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )


TARGETS: Final[dict[str, Target]] = {
    # cold_start
    "nacre_exec_wall": Target(label="nacre exec, whole process", unit="s", at_most=0.4),
    "nacre_exec_cpu": Target(label="nacre exec, whole process, CPU", unit="s"),
    "code_mode_script_wall": Target(label="script with CodeMode, whole process", unit="s"),
    "code_mode_script_cpu": Target(label="script with CodeMode, whole process, CPU", unit="s"),
    "import_asyncio_wall": Target(label="`import asyncio`, whole process, to compare", unit="s"),
    "import_asyncio_cpu": Target(label="`import asyncio`, whole process, CPU", unit="s"),
    "first_result_warm": Target(label="sandbox to first result, module cached", unit="ms"),
    "first_result_empty": Target(label="sandbox to first result, empty cache", unit="ms"),
    # first_search
    "first_search_empty": Target(
        label="10,000 tools: first search of a process, nothing stored", unit="ms", at_most=150
    ),
    "first_search_stored": Target(
        label="10,000 tools: first search of a process, documents stored", unit="ms", at_most=150
    ),
    "next_search": Target(label="10,000 tools: program with one search, then", unit="ms"),
    "many_tools_memory": Target(
        label="10,000 tools: memory of all processes, by words", unit="MB", at_most=110
    ),
    "idle_memory": Target(label="CodeMode with two workers: memory", unit="MB", at_most=60),
    # cells
    "cell_cpu": Target(label="warm trivial cell, CPU", unit="ms", at_most=3, peer="22 (OpenClaw)"),
    "cell_p50": Target(
        label="warm trivial cell, wall p50",
        unit="ms",
        at_most=4,
        peer="36 (OpenClaw); Codex 5, UTCP 7.5, FastMCP 12",
    ),
    "cell_p95": Target(label="warm trivial cell, wall p95", unit="ms"),
    # requests
    "sequence_cpu": Target(
        label="100 requests in sequence, CPU", unit="ms", at_most=35, peer="208 (OpenClaw)"
    ),
    "sequence_p50": Target(
        label="100 requests in sequence, wall p50", unit="ms", peer="Codex 29, FastMCP 226"
    ),
    "parallel_cpu": Target(
        label="16 requests in parallel, CPU", unit="ms", at_most=6, peer="27 (OpenClaw)"
    ),
    "parallel_p50": Target(label="16 requests in parallel, wall p50", unit="ms"),
    # replay
    "replay_differences": Target(
        label="1,000 recorded cells replayed, differences", unit="cells", at_most=0
    ),
    "replay_cell_mean": Target(label="replay of a recorded cell, wall mean", unit="ms"),
    "recorded_cell_mean": Target(label="the same cell when it was recorded, mean", unit="ms"),
    # suspension
    "yield_p50": Target(label="yield to waiting, wall p50", unit="ms", peer="35 (OpenClaw)"),
    "resume_p50": Target(label="resume to completed, wall p50", unit="ms", peer="15 (OpenClaw)"),
    "yield_resume_p50": Target(
        label="yield plus resume, wall p50", unit="ms", at_most=8, peer="50 (OpenClaw)"
    ),
    "yield_resume_cpu": Target(label="yield plus resume, CPU", unit="ms"),
    "snapshot_size": Target(
        label="snapshot of a small suspended cell",
        unit="KiB",
        at_most=64,
        peer="1280 (OpenClaw 2026.7.1)",
    ),
    "suspended_memory": Target(
        label="memory per suspended cell",
        unit="KiB",
        at_most=128,
        peer="1610 (OpenClaw)",
    ),
    # throughput
    "rate_1": Target(label="trivial cells, 1 at once", unit="/s"),
    "rate_8": Target(label="trivial cells, 8 at once", unit="/s"),
    "rate_32": Target(
        label="trivial cells, 32 at once", unit="/s", at_least=250, peer="35 (OpenClaw)"
    ),
    "rate_failed": Target(label="cells of these that failed", unit="", at_most=0),
    # engine
    "loop_ratio": Target(
        label="5,000,000 additions, CPU against Node",
        unit="x",
        at_most=1.05,
        peer="1.0 (OpenClaw)",
    ),
    "loop_wall_ratio": Target(label="5,000,000 additions, wall against Node", unit="times"),
    "loop_cpu": Target(label="5,000,000 additions, CPU", unit="ms", peer="746 (OpenClaw)"),
    # typescript
    "typescript_first_wall": Target(label="TypeScript cell, first, wall", unit="ms"),
    "typescript_first_cpu": Target(label="TypeScript cell, first, CPU", unit="ms"),
    "typescript_warm_cpu": Target(
        label="TypeScript cell, warm, CPU", unit="ms", at_most=10, peer="gone (OpenClaw)"
    ),
    "typescript_warm_p50": Target(label="TypeScript cell, warm, wall p50", unit="ms"),
    # noisy_neighbour
    "stop_p50": Target(
        label="endless loop, 500 ms budget, p50",
        unit="ms",
        at_least=500,
        at_most=560,
        peer="507 (OpenClaw)",
    ),
    "stop_min": Target(label="endless loop, 500 ms budget, least", unit="ms", at_least=500),
    "stop_max": Target(label="endless loop, 500 ms budget, most", unit="ms", at_most=560),
    "neighbour_quiet": Target(label="another session's cell, quiet, p50", unit="ms"),
    "neighbour_1": Target(label="same beside 1 endless loop, against quiet", unit="x", at_most=2),
    "neighbour_2": Target(label="same beside 2 endless loops, against quiet", unit="x", at_most=2),
    "neighbour_4": Target(label="same beside 4 endless loops, against quiet", unit="x", at_most=2),
    # loop_stalls
    "loop_stall_idle": Target(label="loop stopped while it has nothing to do", unit="ms"),
    "loop_stall_results": Target(
        label="loop stopped by 16 results of 5.4 MB", unit="ms", at_most=100
    ),
    "loop_stall_large_results": Target(label="same, 16.6 MB", unit="ms", at_most=100),
    "loop_stall_input": Target(
        label="loop stopped by calls with large input", unit="ms", at_most=100
    ),
    "loop_stall_value": Target(label="loop stopped by a value of 2 MB", unit="ms", at_most=100),
    "loop_stall_mcp": Target(
        label="loop stopped by 200 MCP results of 8 MiB", unit="ms", at_most=100
    ),
    "loop_stall_keys": Target(
        label="/healthz beside a body with 640,000 keys, longest", unit="ms", at_most=100
    ),
    "loop_stall_messages": Target(label="same, 180,000 messages", unit="ms", at_most=100),
    "loop_stall_history": Target(label="same, 4,000 messages", unit="ms", at_most=100),
    "loop_stall_prompt": Target(label="same, a prompt of 8 MB", unit="ms", at_most=100),
    # catalogs
    "catalog_ratio": Target(
        label="`return 1`, 10,000 tools against 10, CPU",
        unit="x",
        at_most=1.3,
        peer="50 (OpenClaw)",
    ),
    "program_cpu": Target(label="`return 1`, 10,000 tools, CPU", unit="ms"),
    "all_tools_cpu": Target(
        label="`return ALL_TOOLS.length`, 10,000 tools, CPU",
        unit="ms",
        at_most=100,
        peer="1154 (OpenClaw)",
    ),
    "search_cpu": Target(
        label="one tools.search, 10,000 tools, index warm, CPU",
        unit="ms",
        at_most=15,
        peer="2104 (OpenClaw)",
    ),
    "catalog_build_cpu": Target(label="run with 10,000 tools, made, CPU", unit="ms"),
    "catalog_first_program_cpu": Target(label="its first program, CPU", unit="ms"),
    "search_cold_cpu": Target(label="its first search, index built, CPU", unit="ms"),
    "catalog_memory": Target(label="its memory in all processes, without tools", unit="MB"),
    "catalog_next_run_cpu": Target(label="a further run with them, one search, CPU", unit="ms"),
    # tool_calls
    "tool_calls_cpu": Target(
        label="100 tools.call in sequence, hooks and record, CPU",
        unit="ms",
        at_most=80,
        peer="208 (OpenClaw)",
    ),
    "tool_calls_p50": Target(
        label="100 tools.call in sequence, hooks and record, wall p50",
        unit="ms",
        peer="FastMCP 226, pydantic-ai 208",
    ),
    "task_model_calls": Target(
        label="model calls to search, describe, call, transform",
        unit="",
        at_most=1,
        peer="1 (OpenClaw); 4 (OpenClaw 2026.7.1)",
    ),
    # definitions
    "definitions_bytes": Target(
        label="definitions, 500 tools, no index of names",
        unit="bytes",
        at_most=2000,
        peer="11276 (OpenClaw)",
    ),
    "definitions_index_bytes": Target(
        label="definitions, 500 tools, index of names",
        unit="bytes",
        at_most=4000,
        peer="11276 (OpenClaw)",
    ),
    "definitions_direct_bytes": Target(label="the 500 tools themselves", unit="bytes"),
    # suspended_runs
    "fleet_wrong_results": Target(
        label="1,000 suspended runs: wrong or doubled results", unit="", at_most=0
    ),
    "fleet_wrong_effects": Target(
        label="1,000 suspended runs: doubled or lost effects", unit="", at_most=0
    ),
    "fleet_wall": Target(label="1,000 suspended runs: all suspended and resumed", unit="s"),
    "fleet_memory": Target(label="1,000 suspended runs: memory per run", unit="KiB"),
    # mcp_serving
    "mcp_serving_wall": Target(
        label="nacre mcp, 20 servers, start to tools/list, p50", unit="s", at_most=1
    ),
    "mcp_serving_cpu": Target(label="nacre mcp, 20 servers, start to end, CPU", unit="s"),
    "mcp_serving_started": Target(
        label="nacre mcp: servers started before that answer", unit="", at_most=0
    ),
    # mcp_calls
    "mcp_call_exec_more": Target(
        label="MCP tool through exec, more than with the SDK, p50", unit="ms", at_most=8
    ),
    "mcp_call_served_more": Target(
        label="the same through exec of nacre mcp, p50", unit="ms", at_most=8
    ),
    "mcp_call_direct": Target(label="the same call with the SDK, p50", unit="ms"),
    # mcp_bytes
    "mcp_bytes_saved": Target(
        label="definitions of 5 MCP servers: bytes saved", unit="%", at_least=95
    ),
    "mcp_bytes_shown": Target(label="exec and wait in front of them", unit="bytes"),
    "mcp_bytes_own": Target(label="their own definitions", unit="bytes"),
    # mcp_declarations
    "mcp_declarations_wall": Target(
        label="declarations for 1,000 MCP tools, rendered", unit="s", at_most=1
    ),
    "mcp_declarations_problems": Target(
        label="what the TypeScript compiler says of them", unit="", at_most=0
    ),
    # mcp_neighbours
    "mcp_unfinished": Target(
        label="50 cells, 5 MCP servers, one hangs: others unfinished", unit="", at_most=0
    ),
    "mcp_neighbours_wall": Target(label="until the others were finished", unit="s"),
    # search_quality: targets and peers are for all queries, some of which are stored
    # elsewhere; the lead is over the peers that ran on the same queries.
    "search_lead": Target(label="search: least lead over a peer run here", unit="", at_least=0),
    "search_own_name_first": Target(
        label="search: an MCP tool's own name, as words, is first", unit="", at_least=0.99
    ),
    "search_own_name_in_8": Target(
        label="search: an MCP tool's own name, as words, in 8", unit="", at_least=1
    ),
    "search_recall_livemcpbench_queries": Target(
        label="recall at 8, livemcpbench tasks",
        unit="",
        at_least=0.41,
        peer="OpenClaw .394, BM25F .410, Codex .377, FastMCP .378",
    ),
    "search_mrr_livemcpbench_queries": Target(
        label="MRR, livemcpbench tasks",
        unit="",
        at_least=0.48,
        peer="OpenClaw .454, BM25F .480, Codex .422, FastMCP .427",
    ),
    "search_recall_livemcpbench_agent_queries": Target(
        label="recall at 8, livemcpbench agents",
        unit="",
        at_least=0.688,
        peer="OpenClaw .688, BM25F .687, Codex .652, FastMCP .659",
    ),
    "search_mrr_livemcpbench_agent_queries": Target(
        label="MRR, livemcpbench agents",
        unit="",
        at_least=0.512,
        peer="OpenClaw .484, BM25F .512, Codex .454, FastMCP .482",
    ),
    "search_recall_bfcl_queries": Target(
        label="recall at 8, bfcl",
        unit="",
        at_least=0.859,
        peer="OpenClaw .859, BM25F .856, Codex .741, FastMCP .802",
    ),
    "search_mrr_bfcl_queries": Target(
        label="MRR, bfcl",
        unit="",
        at_least=0.667,
        peer="OpenClaw .659, BM25F .667, Codex .571, FastMCP .623",
    ),
    "search_recall_metatool_queries": Target(
        label="recall at 8, metatool",
        unit="",
        at_least=0.682,
        peer="OpenClaw .682, BM25F .672, Codex .655, FastMCP .479",
    ),
    "search_mrr_metatool_queries": Target(
        label="MRR, metatool",
        unit="",
        at_least=0.522,
        peer="OpenClaw .518, BM25F .522, Codex .495, FastMCP .345",
    ),
    "search_recall_metatool_multi_queries": Target(
        label="recall at 8, metatool, two tools",
        unit="",
        at_least=0.727,
        peer="OpenClaw .727, BM25F .715, Codex .586, FastMCP .345",
    ),
    "search_mrr_metatool_multi_queries": Target(
        label="MRR, metatool, two tools",
        unit="",
        at_least=0.648,
        peer="OpenClaw .648, BM25F .617, Codex .502, FastMCP .315",
    ),
    "search_recall_sealtools_queries": Target(
        label="recall at 8, sealtools",
        unit="",
        at_least=0.936,
        peer="OpenClaw .916, BM25F .936, Codex .813, FastMCP .863",
    ),
    "search_mrr_sealtools_queries": Target(
        label="MRR, sealtools",
        unit="",
        at_least=0.974,
        peer="OpenClaw .972, BM25F .974, Codex .899, FastMCP .955",
    ),
    "search_recall_union_livemcpbench_queries": Target(
        label="recall at 8 in 10,000, livemcpbench tasks",
        unit="",
        at_least=0.257,
        peer="OpenClaw .257, BM25F .243, Codex .198, FastMCP .218",
    ),
    "search_mrr_union_livemcpbench_queries": Target(
        label="MRR in 10,000, livemcpbench tasks", unit=""
    ),
    "search_recall_union_livemcpbench_agent_queries": Target(
        label="recall at 8 in 10,000, livemcpbench agents",
        unit="",
        at_least=0.488,
        peer="OpenClaw .417, BM25F .488, Codex .389, FastMCP .403",
    ),
    "search_mrr_union_livemcpbench_agent_queries": Target(
        label="MRR in 10,000, livemcpbench agents", unit=""
    ),
    "search_recall_union_bfcl_queries": Target(
        label="recall at 8 in 10,000, bfcl",
        unit="",
        at_least=0.769,
        peer="OpenClaw .769, BM25F .748, Codex .632, FastMCP .711",
    ),
    "search_mrr_union_bfcl_queries": Target(label="MRR in 10,000, bfcl", unit=""),
    "search_recall_union_metatool_queries": Target(
        label="recall at 8 in 10,000, metatool",
        unit="",
        at_least=0.41,
        peer="OpenClaw .397, BM25F .387, Codex .410, FastMCP .310",
    ),
    "search_mrr_union_metatool_queries": Target(label="MRR in 10,000, metatool", unit=""),
    "search_recall_union_metatool_multi_queries": Target(
        label="recall at 8 in 10,000, metatool, two tools",
        unit="",
        at_least=0.232,
        peer="OpenClaw .232, BM25F .215, Codex .175, FastMCP .082",
    ),
    "search_mrr_union_metatool_multi_queries": Target(
        label="MRR in 10,000, metatool, two tools", unit=""
    ),
    # search_cost
    "search_build_10": Target(label="search index built, 10 tools, CPU", unit="ms"),
    "search_query_10": Target(label="search, one query, 10 tools, p50", unit="ms"),
    "search_memory_10": Target(label="search index, 10 tools, memory", unit="MB"),
    "search_build_1k": Target(label="search index built, 1,000 tools, CPU", unit="ms"),
    "search_query_1k": Target(label="search, one query, 1,000 tools, p50", unit="ms"),
    "search_memory_1k": Target(label="search index, 1,000 tools, memory", unit="MB"),
    "search_build_10k": Target(
        label="search index built, 10,000 tools, CPU", unit="ms", at_most=2000
    ),
    "search_query_10k": Target(
        label="search, one query, 10,000 tools, p50",
        unit="ms",
        at_most=1,
        peer="FastMCP 80, OpenClaw 6",
    ),
    "search_memory_10k": Target(label="search index, 10,000 tools, memory", unit="MB"),
    "search_change_10k": Target(
        label="search index, one server of 100 in 10,000 tools changed", unit="ms", at_most=50
    ),
    # search_semantic: the target is BM25F and MiniLM fused by rank, for all queries, of which
    # some are stored elsewhere; the lead is over the same fusion on the same queries.
    "search_semantic_build": Target(label="semantic search, vectors of a new tool", unit="ms"),
    "search_semantic_query_10k": Target(
        label="semantic search, one query, 10,000 tools, p50", unit="ms", at_most=15
    ),
    "search_semantic_mean_recall": Target(
        label="semantic search, mean recall at 8 of the sets", unit="", at_least=0.76
    ),
    "search_semantic_lead": Target(
        label="semantic search: least lead over rank fusion run here", unit="", at_least=0
    ),
    "search_semantic_recall_livemcpbench_queries": Target(
        label="semantic recall at 8, livemcpbench tasks",
        unit="",
        at_least=0.447,
        peer="rank fusion .447",
    ),
    "search_semantic_mrr_livemcpbench_queries": Target(
        label="semantic MRR, livemcpbench tasks",
        unit="",
        at_least=0.508,
        peer="rank fusion .508",
    ),
    "search_semantic_recall_livemcpbench_agent_queries": Target(
        label="semantic recall at 8, livemcpbench agents",
        unit="",
        at_least=0.78,
        peer="rank fusion .780",
    ),
    "search_semantic_mrr_livemcpbench_agent_queries": Target(
        label="semantic MRR, livemcpbench agents",
        unit="",
        at_least=0.583,
        peer="rank fusion .583",
    ),
    "search_semantic_recall_bfcl_queries": Target(
        label="semantic recall at 8, bfcl",
        unit="",
        at_least=0.877,
        peer="rank fusion .877",
    ),
    "search_semantic_mrr_bfcl_queries": Target(
        label="semantic MRR, bfcl",
        unit="",
        at_least=0.671,
        peer="rank fusion .671",
    ),
    "search_semantic_recall_metatool_queries": Target(
        label="semantic recall at 8, metatool",
        unit="",
        at_least=0.781,
        peer="rank fusion .781",
    ),
    "search_semantic_mrr_metatool_queries": Target(
        label="semantic MRR, metatool",
        unit="",
        at_least=0.618,
        peer="rank fusion .618",
    ),
    "search_semantic_recall_metatool_multi_queries": Target(
        label="semantic recall at 8, metatool, two tools",
        unit="",
        at_least=0.769,
        peer="rank fusion .769",
    ),
    "search_semantic_mrr_metatool_multi_queries": Target(
        label="semantic MRR, metatool, two tools",
        unit="",
        at_least=0.701,
        peer="rank fusion .701",
    ),
    "search_semantic_recall_sealtools_queries": Target(
        label="semantic recall at 8, sealtools",
        unit="",
        at_least=0.818,
        peer="rank fusion .818",
    ),
    "search_semantic_mrr_sealtools_queries": Target(
        label="semantic MRR, sealtools",
        unit="",
        at_least=0.935,
        peer="rank fusion .935",
    ),
    "search_semantic_recall_union_livemcpbench_queries": Target(
        label="semantic recall at 8 in 10,000, livemcpbench tasks",
        unit="",
        at_least=0.303,
        peer="rank fusion .303",
    ),
    "search_semantic_mrr_union_livemcpbench_queries": Target(
        label="semantic MRR in 10,000, livemcpbench tasks", unit=""
    ),
    "search_semantic_recall_union_livemcpbench_agent_queries": Target(
        label="semantic recall at 8 in 10,000, livemcpbench agents",
        unit="",
        at_least=0.551,
        peer="rank fusion .551",
    ),
    "search_semantic_mrr_union_livemcpbench_agent_queries": Target(
        label="semantic MRR in 10,000, livemcpbench agents", unit=""
    ),
    "search_semantic_recall_union_bfcl_queries": Target(
        label="semantic recall at 8 in 10,000, bfcl",
        unit="",
        at_least=0.802,
        peer="rank fusion .802",
    ),
    "search_semantic_mrr_union_bfcl_queries": Target(label="semantic MRR in 10,000, bfcl", unit=""),
    "search_semantic_recall_union_metatool_queries": Target(
        label="semantic recall at 8 in 10,000, metatool",
        unit="",
        at_least=0.493,
        peer="rank fusion .493",
    ),
    "search_semantic_mrr_union_metatool_queries": Target(
        label="semantic MRR in 10,000, metatool", unit=""
    ),
    "search_semantic_recall_union_metatool_multi_queries": Target(
        label="semantic recall at 8 in 10,000, metatool, two tools",
        unit="",
        at_least=0.227,
        peer="rank fusion .227",
    ),
    "search_semantic_mrr_union_metatool_multi_queries": Target(
        label="semantic MRR in 10,000, metatool, two tools", unit=""
    ),
    # gateway_start
    "gateway_start_wall": Target(label="gateway, process to healthy", unit="s", at_most=2),
    "gateway_start_cpu": Target(label="gateway, process to healthy, CPU", unit="s"),
    # gateway_turns
    "gateway_unkept_p50": Target(
        label="turn without tools or session, added, p50",
        unit="ms",
        at_most=7,
        peer="26 (LiteLLM)",
    ),
    "gateway_unkept_p95": Target(label="turn without tools or session, added, p95", unit="ms"),
    "gateway_unkept_cpu": Target(label="turn without tools or session, CPU", unit="ms"),
    "gateway_turn_p50": Target(label="turn without tools, added, p50", unit="ms", at_most=14),
    "gateway_turn_p95": Target(label="turn without tools, added, p95", unit="ms"),
    "gateway_turn_cpu": Target(label="turn without tools, CPU", unit="ms"),
    "gateway_exec_p50": Target(
        label="turn with an exec of 3 nested calls, added, p50", unit="ms", at_most=28
    ),
    "gateway_exec_p95": Target(label="turn with an exec of 3 nested calls, added, p95", unit="ms"),
    "gateway_exec_cpu": Target(label="turn with an exec of 3 nested calls, CPU", unit="ms"),
    # gateway_bytes
    "gateway_bytes_saved_search_code": Target(
        label="first request, 300 tools, Tool Search code, smaller by", unit="%", at_least=90
    ),
    "gateway_bytes_saved_search_tools": Target(
        label="first request, 300 tools, Tool Search tools, smaller by", unit="%", at_least=90
    ),
    "gateway_bytes_saved_code_mode": Target(
        label="first request, 300 tools, code mode, smaller by", unit="%", at_least=95
    ),
    "gateway_bytes_direct": Target(label="first request, 300 tools, direct", unit="bytes"),
    "gateway_bytes_search_code": Target(
        label="first request, 300 tools, Tool Search code", unit="bytes"
    ),
    "gateway_bytes_search_tools": Target(
        label="first request, 300 tools, Tool Search tools", unit="bytes"
    ),
    "gateway_bytes_code_mode": Target(label="first request, 300 tools, code mode", unit="bytes"),
    # gateway_aborts
    "gateway_abort_model": Target(
        label="abort while the model streams, most", unit="ms", at_most=200
    ),
    "gateway_abort_tool": Target(label="abort while a tool runs, most", unit="ms", at_most=200),
    "gateway_abort_cell": Target(
        label="abort while a program computes, most", unit="ms", at_most=200
    ),
    "gateway_abort_approval": Target(
        label="abort while a person is asked, most", unit="ms", at_most=200
    ),
    "gateway_abort_client": Target(
        label="abort while a client is asked, most", unit="ms", at_most=200
    ),
    "gateway_abort_left": Target(label="runs and questions left of these", unit="", at_most=0),
    # gateway_kill
    "gateway_kill_lost": Target(label="killed: sessions that lost a turn", unit="", at_most=0),
    "gateway_kill_half": Target(label="killed: sessions with half a turn", unit="", at_most=0),
    "gateway_kill_stuck": Target(label="killed: sessions that are stuck", unit="", at_most=0),
    # gateway_load
    "gateway_load_failures": Target(
        label="50 sessions at once, 20 turns: failures", unit="", at_most=0
    ),
    "gateway_load_disorder": Target(
        label="same: sessions with a turn lost or out of order", unit="", at_most=0
    ),
    "gateway_load_growth": Target(
        label="same: growth of memory, round 3 against 1", unit="MB", at_most=10
    ),
    "gateway_load_rate": Target(label="same: turns", unit="/s"),
    "gateway_load_p95": Target(label="same: a turn, p95", unit="ms"),
    # durable_suspend
    "durable_suspend_sqlite": Target(
        label="durable suspend and resume, more than in memory: SQLite", unit="ms", at_most=3
    ),
    "durable_suspend_postgres": Target(label="same: PostgreSQL", unit="ms", at_most=4),
    # gateway_cluster
    "cluster_lost_turns": Target(
        label="three gateways, one killed every 20 s: lost turns", unit="", at_most=0
    ),
    "cluster_lost_approvals": Target(label="same: lost approvals", unit="", at_most=0),
    "cluster_broken_streams": Target(label="same: gaps in event streams", unit="", at_most=0),
    "cluster_wrong_sessions": Target(
        label="same: sessions with turns out of order or without an end", unit="", at_most=0
    ),
    # gateway_scaling
    "scaling_turns_1": Target(label="turns with one gateway on PostgreSQL", unit="/s"),
    "scaling_turns_2": Target(label="same: two gateways", unit="/s"),
    "scaling_turns_3": Target(label="same: three gateways", unit="/s"),
    "scaling_turn_own": Target(label="a turn at the gateway with the lease, wall p50", unit="ms"),
    "scaling_turn_other": Target(label="same: at another gateway", unit="ms"),
    "scaling_event_lag": Target(
        label="an event, until a reader at another gateway has it, p50", unit="ms", at_most=60
    ),
    "scaling_takeover": Target(
        label="a killed gateway, until another one continues its turn, p50", unit="ms", at_most=1000
    ),
    "scaling_adopted_lost": Target(
        label="1,000 waiting cells of a killed gateway: lost", unit="cells", at_most=0
    ),
    # ray_cells
    "ray_leg": Target(label="a leg on a Ray node, more than a local one", unit="ms", at_most=4),
    "ray_leg_suspended": Target(label="same: suspended and resumed", unit="ms", at_most=4),
    "ray_leg_calls": Target(label="same: with ten calls in sequence, 11 bursts", unit="ms"),
    "ray_rate_local": Target(label="cells that compute for 5 ms, two local workers", unit="/s"),
    "ray_rate_one": Target(label="same: one Ray node with two workers", unit="/s"),
    "ray_rate_two": Target(label="same: two Ray nodes on this machine", unit="/s"),
    # gateway_memory
    "gateway_memory_growth": Target(
        label="gateway: growth after 140 prompts of 8 MB and 20 answers of 20 MB",
        unit="MB",
        at_most=150,
    ),
    # codex_tool_calls
    "codex_tool_call_p50": Target(label="a step of Codex with a Nacre tool, wall p50", unit="ms"),
    "codex_tool_call_bare_p50": Target(label="the same with a bare client, wall p50", unit="ms"),
    "codex_tool_call_built_in_p50": Target(
        label="the same step in the built-in loop, wall p50", unit="ms"
    ),
    "codex_tool_call_added": Target(
        label="what Nacre adds to a call of Codex, wall p50", unit="ms", at_most=10
    ),
    "codex_tool_call_more": Target(
        label="a step of Codex more than one of the built-in loop", unit="ms"
    ),
    "codex_tool_call_own": Target(label="of that, what Codex itself needs", unit="ms"),
    "codex_tool_call_answer": Target(
        label="a call of Codex until Nacre has answered it, p50", unit="ms", at_most=10
    ),
    "codex_tool_call_ratio": Target(label="a step with Nacre by a bare one", unit="times"),
    # codex_relay
    "codex_relay_wall": Target(
        label="one native hook of Codex, wall p50", unit="ms", at_most=60, peer="3400 (OpenClaw)"
    ),
    "codex_relay_cpu": Target(label="one native hook of Codex, CPU p50", unit="ms"),
    "codex_relay_ratio": Target(
        label="one native hook, compared with `python -c pass`", unit="times", at_most=1.5
    ),
    # codex_turns
    "codex_turn_p50": Target(label="a turn in Codex, wall p50", unit="ms"),
    "codex_turn_bare_p50": Target(label="the same turn by a bare client, wall p50", unit="ms"),
    "codex_turn_added": Target(
        label="what Nacre adds to a turn of Codex, wall p50", unit="ms", at_most=25
    ),
    "codex_turn_ratio": Target(label="a turn with Nacre by a bare one", unit="times"),
    "codex_abort_model": Target(
        label="abort in Codex while the model streams, slowest", unit="ms", at_most=300
    ),
    "codex_abort_shell": Target(
        label="abort in Codex while a command runs, slowest", unit="ms", at_most=300
    ),
    "codex_abort_tool": Target(
        label="abort in Codex while a tool of Nacre runs, slowest", unit="ms", at_most=300
    ),
    "codex_abort_approval": Target(
        label="abort in Codex while an approval is open, slowest", unit="ms", at_most=300
    ),
    "codex_sessions_ratio": Target(
        label="four sessions of Codex at once by one alone", unit="times", at_most=4
    ),
    # web_first_view
    "web_first_view_size": Target(
        label="web app: what the first view loads, gzip", unit="kB", at_most=100
    ),
    "web_first_view": Target(
        label="web app: page request to a usable message box", unit="ms", at_most=300
    ),
    "web_first_view_cpu": Target(label="same: CPU of the main thread", unit="ms"),
    "web_first_view_share": Target(label="same: CPU of the main thread by wall", unit="%"),
    "web_first_view_cached": Target(label="same, with the files in the cache", unit="ms"),
    # web_transcript
    "web_transcript_load": Target(
        label="session of 2,000 messages: page request to its last turn", unit="ms", at_most=500
    ),
    "web_transcript_cpu": Target(label="same: CPU of the main thread", unit="ms"),
    "web_transcript_share": Target(label="same: CPU of the main thread by wall", unit="%"),
    "web_transcript_open": Target(
        label="same session: click in the list to its last turn", unit="ms", at_most=500
    ),
    "web_transcript_scroll_task": Target(
        label="scrolling through it: longest task", unit="ms", at_most=50
    ),
    "web_transcript_scroll_task_cpu": Target(
        label="scrolling through it: longest task, CPU", unit="ms", at_most=50
    ),
    "web_transcript_scroll_long": Target(label="scrolling through it: tasks over 50 ms", unit=""),
    "web_transcript_nodes": Target(label="DOM nodes with all its turns", unit=""),
    # web_live_run
    "web_live_task": Target(
        label="run of 10,000 events in an open page: longest task", unit="ms", at_most=100
    ),
    "web_live_task_cpu": Target(label="same: longest task, CPU", unit="ms", at_most=100),
    "web_live_cpu": Target(label="same: CPU of all tasks", unit="ms"),
    "web_live_share": Target(label="same: CPU of all tasks by their wall time", unit="%"),
    "web_live_growth": Target(label="same: growth of the heap", unit="MB", at_most=10),
    "web_live_growth_late": Target(
        label="same: growth of the heap, second half", unit="MB", at_most=5
    ),
    "web_live_replay_task": Target(
        label="page opened when such a run has all events: longest task",
        unit="ms",
        at_most=100,
    ),
    "web_live_replay_task_cpu": Target(label="same: longest task, CPU", unit="ms", at_most=100),
    # soak
    "soak_growth": Target(label="soak: growth of memory", unit="MB", at_least=-20, at_most=20),
    "soak_surprises": Target(label="soak: cells that ended otherwise", unit="", at_most=0),
    "soak_processes": Target(label="soak: processes left", unit="", at_most=0),
    "soak_descriptors": Target(label="soak: descriptors left", unit="", at_most=0),
    "soak_files": Target(label="soak: files left", unit="", at_most=0),
    "soak_rate": Target(label="soak: cells", unit="/s"),
}
