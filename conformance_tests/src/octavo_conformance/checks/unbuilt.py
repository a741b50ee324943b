"""Ids that are kept for what Octavo cannot do yet (several devices, experts, adapters, draft models), or that mean
nothing under this version of the contract, which has no word for them; with the reason.

What the design's catalogue has for L1 and Q and the contract has not, so that no id is kept for it:

att.empty_batch, att.zero_len_row   core schedules no step without rows and no row without tokens; padding rows are for
                                    platforms of static shapes, whose checks are those of module G
att.alibi, att.cross, att.mla,      no op or attribute of the dialect asks for them
att.tree_mask, rope.yarn,
rope.dynamic_ntk, rope.mrope
att.lse_merge                       no partial result leaves a platform: att.long_context checks what the parts join to
att.kv_dtype_fp8, qnt.fp8_…,        no such format or cache type: Capabilities knows none
qnt.mx…, qnt.act_quant_static
smp.rejection_spec                  no draft tokens yet
"""

from __future__ import annotations

from octavo_conformance.check import declare

_COM = {
    "allreduce_sum": "all_reduce MUST give the sum over ranks: exactly for integers, within the budget for the rest.",
    "allreduce_dtypes": "all_reduce MUST keep the type of what it adds.",
    "allreduce_sizes": "all_reduce MUST be right for 0, 1, odd and unaligned sizes, on both sides of every threshold.",
    "allgather_order": "all_gather MUST join the ranks' arrays in rank order.",
    "allgather_uneven": "all_gather MUST join arrays of different lengths, or refuse them.",
    "reduce_scatter": "reduce_scatter MUST give each rank its share of the sum.",
    "all_to_all": "all_to_all MUST give part i to rank i, in rank order.",
    "broadcast": "broadcast MUST give every rank the root's bytes, for every root.",
    "send_recv": "Messages between two ranks MUST arrive whole and in order.",
    "barrier_timeout": "A barrier that a rank never reaches MUST raise on the others within the group's timeout.",
    "determinism": "Results MUST be equal on all ranks, bit for bit, every time.",
    "subgroups": "Groups that overlap MUST not disturb one another.",
    "stream_order": "A collective MUST see the computation before it.",
    "in_graph": "A collective within a compiled program MUST give what it gives outside.",
    "rank_death": "The death of a rank MUST raise on the others in time and leave no memory behind.",
    "reinit": "A group that is made and closed again and again MUST leave nothing behind.",
}
_MOE = {
    "topk_routing": "Each token MUST go to its k experts of the largest gates, the smaller id first among equals.",
    "softmax_renorm": "Gates MUST be normalised as the model says.",
    "grouped_topk": "Grouped routing MUST choose groups before experts.",
    "expert_identity": "A token MUST be run through exactly the experts it is routed to.",
    "empty_expert": "An expert without tokens MUST change nothing.",
    "one_hot_expert": "All tokens to one expert MUST all be run; none is dropped.",
    "token_permutation": "The order of tokens MUST not matter.",
    "grouped_gemm_sizes": "Groups of 0, 1, odd and very many rows MUST be right.",
    "shared_expert": "A shared expert MUST be added for every token.",
    "ep_dispatch_combine": "Sending tokens to experts on other ranks and back MUST bring each back to its place.",
}
_LORA = {
    "none_identical": "Rows without an adapter MUST be the base model's, bit for bit.",
    "single": "A row with an adapter MUST be the base model's plus the adapter's.",
    "mixed_batch": "Each row MUST get its own adapter.",
    "slot_reuse_isolation": "An adapter in a used slot MUST show nothing of the one before.",
    "rank_pad": "Adapters of every rank up to the largest MUST be right.",
    "on_quant_base": "Adapters over quantized weights MUST be right.",
    "load_while_running": "Loading an adapter MUST not change rows in flight.",
    "max_exceeded": "One adapter more than there is room for MUST be refused by a typed error.",
}

_GRAPH = {
    "eager_equals_graph": "What runs step by step MUST be what a program brings. Contract 1.0 has programs alone; "
    "gph.every_bucket compares them with one another and with the truth.",
    "mixed_eager_graph_interleave": "Programs and single steps MUST mix. Contract 1.0 has programs alone; "
    "gph.bucket_interleave mixes these.",
    "async_compile_race": "Serving while programs are compiled MUST be right. Under contract 1.0 all is compiled "
    "before the first step; gph.recompile_bound holds that.",
}
_ENGINE = {
    "preempt_swap": (
        "L5",
        "Blocks that are moved to the host and back MUST hold what they held. The engine computes anew.",
    ),
    "spec_decode_equivalence": ("L5", "Greedy tokens with a draft model MUST be those without. There is none yet."),
    "lora_isolation": ("LORA", "Requests with adapters MUST not change those without, nor one another."),
    "tp_equivalence": ("D", "A model on several devices MUST make the tokens that it makes on one."),
    "pp_equivalence": ("D", "A model in stages MUST make the tokens that it makes on one device."),
    "ep_equivalence": ("D", "A model with experts on several devices MUST make the tokens that it makes on one."),
}
for _name, _spec in _GRAPH.items():
    declare(f"gph.{_name}", level="G", module="GPH", since="1.0", spec=_spec)
for _name, (_level, _spec) in _ENGINE.items():
    declare(f"eng.{_name}", level=_level, module="ENG", since="1.0", spec=_spec)

for _level, _module, _family, _specs in (
    ("D", "COM", "com", _COM),
    ("MOE", "MOE", "moe", _MOE),
    ("LORA", "LORA", "lora", _LORA),
):
    for _name, _spec in _specs.items():
        declare(f"{_family}.{_name}", level=_level, module=_module, since="1.0", spec=_spec)

_NO_WORD = {  # what it would demand, and why there is nothing to run
    "dev.copy_d2d_overlap": """Overlapping copies MUST be defined or refused. The contract has no copies but those of
    whole blocks (kv.copy_blocks); two blocks never overlap.""",
    "dev.mem_peak": """The peak MUST be at least the true high-water mark. The contract asks for no peak: all that a
    step needs is allocated when compile returns (dev.kv_budget_honest).""",
    "dev.no_host_fallback": """No op MUST run on the host unless that is declared. The contract counts no transfers, and
    a host platform is all fallback; what it costs, octavo bench shows.""",
    "dev.two_devices": "Work on one device MUST leave another as it is. A model runs on one device so far.",
    "dev.rng_stream": """Seeded device generators MUST repeat. Devices have none: the uniform numbers of sampling are
    defined to the bit (smp.seed_reproducible).""",
    "kv.duplicate_slots": """Of two tokens for one slot the last MUST win, or the step be refused. Core names no slot
    twice in a step, and octavo-fakechip refuses a step that does.""",
    "kv.fp8_write": "Stored fp8 codes and scales MUST be those of the contract. There is no fp8 cache.",
    "flt.host_oom": """A host without memory MUST fail requests, not the process. To be seen in a control group of its
    own only, which a test may not make everywhere.""",
    "hot.add_device": "A device that is added MUST be found. Devices are found when a process starts.",
    "hot.remove_idle": "An idle device that is removed MUST be missed. It is at the next step (flt.device_lost).",
    "hot.remove_busy": "A busy device that is removed MUST raise a typed error (flt.device_lost).",
    "hot.plugin_reload": "A plugin that is loaded again MUST work. Plugins are loaded once in a process.",
    "prf.sanity": """No op MUST be faster than the device's ceilings allow, or ten times slower than its own plain form.
    The bench facet measures ceilings, and no check reads them yet.""",
    "prf.published": "Times to first token, per token and throughput MUST be published with their spread.",
    "prf.warm_start": "The time of a start from artifacts MUST be published.",
}
_PLACES = {"dev": ("L0", "DEV"), "kv": ("L0", "KV"), "flt": ("R", "FLT"), "hot": ("R", "HOT"), "prf": ("R", "PRF")}

for _id, _spec in _NO_WORD.items():
    _level, _module = _PLACES[_id.partition(".")[0]]
    declare(_id, level=_level, module=_module, since="1.0", spec=_spec)
