"""Usage, help, versions and info: exact texts and exit statuses."""

import os
import re
import subprocess

import pytest

USAGE = """usage: pantile COMMAND [ARGUMENTS]

  info           what runs here: version, CPU, level, threads
  demo           HSTU over real histories, NSA over 64K keys, next to the naive way
  run            compute over .npy files
  check          compute and compare with double
  bench          time problems against the machine's peak
  replay         time logged calls again, old and new
  compare        two outputs of bench, old and new
  help COMMAND   how to use a command
  help hstu      the words of hstu lines
  help jagged    the words of jagged lines
  help nsa       the words of nsa lines
  --version
"""


def test_no_command(pantile):
    done = pantile()
    assert (done.status, done.out, done.err) == (2, "", USAGE)


@pytest.mark.parametrize("arguments", [["help"], ["--help"], ["-h"]])
def test_help(pantile, arguments):
    done = pantile(*arguments)
    assert (done.status, done.out, done.err) == (0, USAGE, "")


@pytest.mark.parametrize("command", ["info", "demo", "run", "check", "bench", "replay", "compare"])
def test_help_of_a_command(pantile, command):
    done = pantile("help", command)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(f"usage: pantile {command}")
    assert pantile(command, "--help").out == done.out
    assert max(map(len, done.out.splitlines())) <= 105


def test_help_names_every_key(pantile):
    text = pantile("help", "hstu").out
    for op in ("hstu_backward", "hstu_kv_append"):
        assert pantile("help", op).out == text
    for key in """b h hk s sq sk lengths lengths_k d dv layout pad seqused_q seqused_k mask mask_batch mask_head
                  num_contexts num_targets attn_scale view index seed cache q k v out seq_offsets_q seq_offsets_k rule
                  window_size target_group_size min_full_attn_seq_len alpha scaling_seqlen max_seqlen_q max_seqlen_k
                  dtype isa executor threads ms intervals bias bias_batch bias_head bias_dtype bias_rows bias_scale
                  pos_table time_table thresholds times time_query page_size ds attn_bias time_thresholds timestamps
                  k_pages v_pages page_offsets page_ids last_page_lens dout dq dk dv dbias dpos_table dtime_table
                  k_pages_out v_pages_out seq_offsets n_cached""".split():
        assert re.search(rf"\b{key}=", text), key
    assert max(map(len, text.splitlines())) <= 105


def test_help_of_jagged_lines(pantile):
    text = pantile("help", "jagged").out
    for op in """jagged_to_padded padded_to_jagged concat_jagged split_jagged position_time
                 position_time_backward""".split():
        assert re.search(rf"^{op}\b", text, re.M), op
        assert pantile("help", op).out == text
    for key in """x x.offsets n align padding_value out out.offsets rows left left.offsets right right.offsets n_prefix
                  left.n right.n emb pos_w ts_w seq_offsets num_targets num_contexts position_order position_start
                  timestamps time_bucket alpha dout demb dpos_w dts_w b s lengths d dtype pad view index seed cache
                  lengths_left lengths_right positions buckets isa executor threads""".split():
        assert re.search(rf"(?<![\w.]){re.escape(key)}=", text), key
    assert max(map(len, text.splitlines())) <= 105


def test_help_of_nsa_lines(pantile):
    text = pantile("help", "nsa").out
    for op in """nsa_compress nsa_append nsa_compressed_attention nsa_select nsa_attend nsa_combine nsa_forward nsa_decode
                 attention attention_decode""".split():
        assert re.search(rf"^{op}\b", text, re.M), op
        assert pantile("help", op).out == text
    for key in """x y seq_offsets seqlens page_table block stride mode w pe seq_offsets_y k v seqlens_old seqlens_k k_pages
                  v_pages k_ring v_ring kc_pages vc_pages page_table_c slots w_k w_v pe_k pe_v k_pages_out v_pages_out
                  kc_pages_out vc_pages_out k_ring_out v_ring_out q q_cmp kc vc seq_offsets_q seq_offsets_k
                  seq_offsets_kc select_block topk n_init n_local count score pool order scale score_dtype lse_in out lse
                  importance idx nsel k_slc v_slc k_swa v_swa window dense_len out_cmp out_slc out_swa lse_cmp lse_slc
                  lse_swa gates gate_act b h hk d dv s sk sq lengths lengths_q dtype layout index page_size branches seed
                  cache isa executor threads ms""".split():
        assert re.search(rf"\b{key}=", text), key
    assert max(map(len, text.splitlines())) <= 105


def test_unknown_command(refused):
    refused("'frobnicate': unknown command, see 'pantile help'", "frobnicate")
    refused("'frobnicate': unknown command, see 'pantile help'", "help", "frobnicate")


def test_version(pantile):
    done = pantile("--version")
    assert done.status == 0
    assert re.fullmatch(r"pantile \d+\.\d+\.\d+\n", done.out)


def test_info(pantile):
    done = pantile("info", PTL_NUM_THREADS="2")
    assert (done.status, done.err) == (0, "")
    lines = dict(line.split(": ", 1) for line in done.out.splitlines()[1:])
    assert done.out.splitlines()[0] + "\n" == pantile("--version").out
    assert list(lines) == ["cpu", "levels", "level", "threads", "executor"]
    assert lines["levels"].split()[0] == "scalar"
    assert lines["level"] == lines["levels"].split()[-1]
    assert (lines["threads"], lines["executor"]) == ("2", "pool")


def test_info_obeys_the_environment(pantile, refused):
    done = pantile("info", PTL_NUM_THREADS="1", PTL_CPU="scalar")
    assert done.out.splitlines()[2:] == ["levels: scalar", "level: scalar", "threads: 1", "executor: serial"]
    refused("PTL_CPU: 'fast', expected scalar, avx2, avx512, neon or avx512bf16", "info", PTL_CPU="fast")
    refused("PTL_NUM_THREADS: 'many', expected 1 to 1024", "info", PTL_NUM_THREADS="many")
    refused("'now': info takes no arguments", "info", "now")


@pytest.mark.parametrize("command", ["run", "check", "bench"])
def test_empty_line(refused, command):
    refused("line: empty, expected an operator and key=value words", command)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk(binary):
    with open("/dev/full", "w") as full:
        done = subprocess.run([binary, "help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "pantile: stdout: cannot be written\n")
