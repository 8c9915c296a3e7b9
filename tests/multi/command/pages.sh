#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Manuals and completions of the kasane command: man(1) has nothing to say of them, each option of
# `kasane run --help` is in them, and the shells that are here offer what fits.
# Usage: pages.sh KASANE
set -euo pipefail
kasane=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "pages: FAILED: $*" >&2; exit 1; }

options=$("$kasane" run --help | grep -oE '^  (-[a-z],)?--[a-z-]+' | grep -oE -- '--[a-z-]+')
[ "$(wc -l <<<"$options")" -ge 25 ] || fail "kasane run --help has only: $options"

for command in "" run info bench plot; do
  page="$scratch/kasane${command:+-$command}.1"
  "$kasane" help --man $command >"$page"
  if command -v man >/dev/null && command -v groff >/dev/null; then
    # Some systems' man is a stand-in that only says that there are no manuals.
    says=$(LC_ALL=C MANWIDTH=80 man --warnings -l "$page" 2>&1 >"$scratch/shown") || continue
    [ -z "$says" ] || fail "man --warnings of kasane $command: $says"
    grep -q "^NAME" "$scratch/shown" || fail "man shows no manual of kasane $command"
  fi
  if command -v mandoc >/dev/null; then   # a date would differ in each build
    says=$(mandoc -T lint -W warning "$page" | grep -v "missing date" || true)
    [ -z "$says" ] || fail "mandoc of kasane $command: $says"
  fi
done
for option in $options; do
  grep -q -- "\\\\fB$(sed 's/-/\\\\-/g' <<<"$option")\\\\fR" "$scratch/kasane-run.1" ||
    fail "kasane-run(1) has no $option"
done

# ---- bash ----
"$kasane" help --completion bash >"$scratch/bash"
source "$scratch/bash"
COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
# offers LINE WORDS: what bash offers at the end of the line, split into words as bash does it.
offers() {
  local word line=$1
  COMP_WORDS=()
  for word in $line; do
    while [[ $word =~ ^([^=:]*)([=:]+)(.*)$ ]]; do
      [[ -z ${BASH_REMATCH[1]} ]] || COMP_WORDS+=("${BASH_REMATCH[1]}")
      COMP_WORDS+=("${BASH_REMATCH[2]}")
      word=${BASH_REMATCH[3]}
    done
    [[ -z $word ]] || COMP_WORDS+=("$word")
  done
  [[ $line != *\  ]] || COMP_WORDS+=("")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  (set +eu; _kasane 2>/dev/null; echo "${COMPREPLY[*]}") >"$scratch/offered"
  [ "$(cat "$scratch/offered")" = "$2" ] || fail "bash: $line: $(cat "$scratch/offered"), not $2"
}
offers "kasane " "run info bench plot help version"
offers "kasane ru" "run"
offers "kasane --vers" "--version"
offers "kasane run --map " "compact scatter"
offers "kasane run --map=sc" "scatter"
offers "kasane run --check races,h" "races,heap"
offers "kasane run --check=races,h" "races,heap"
offers "kasane run -n 2 --debug seed=3,ho" "3,hosts="
offers "kasane run --stats --ma" "--map --main --main-stack --malloc"
offers "kasane run -n 2 --ma" "--map --main --main-stack --malloc"
offers "kasane run -n 2 -- bas" "$(compgen -c bas | tr '\n' ' ' | sed 's/ $//')"
offers "kasane run -n 2 -- cat $scratch/ba" "$scratch/bash"
offers "kasane run -n 2 cat $scratch/ba" "$scratch/bash"
offers "kasane run --trace $scratch/ba" "$scratch/bash"
offers "kasane bench colle" "collectives"
offers "kasane info --topology --map " "compact scatter"
offers "kasane plot -o x $scratch/ba" "$scratch/bash"
offers "kasane help pl" "plot"

# ---- zsh and fish, where they are ----
"$kasane" help --completion zsh >"$scratch/_kasane"
"$kasane" help --completion fish >"$scratch/kasane.fish"
if command -v zsh >/dev/null; then
  zsh -n "$scratch/_kasane" || fail "zsh"
  # A terminal is what zsh completes for.
  cat >"$scratch/try.zsh" <<'END'
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "PS1=; fpath=($1 \$fpath); autoload -U compinit && compinit -u -d $1/dump"
zpty -w z "bindkey '^I' complete-word"
zpty -w z "zstyle ':completion:*' list-prompt ''; LISTMAX=1000; echo read''y"
zpty -r z seen '*ready*'
zpty -w -n z $'kasane run --map=sc\t --check races,he\t -n 2 --globa\t'
zpty -w z " #do''ne"
zpty -r z seen '*globals*'
print -r -- $seen
zpty -d z
END
  seen=$(timeout 30 zsh -f "$scratch/try.zsh" "$scratch" </dev/null) || fail "zsh: status $?: $seen"
  grep -q -- "scatter" <<<"$seen" && grep -q "races,heap" <<<"$seen" || fail "zsh: $seen"
fi
if command -v fish >/dev/null; then
  fish_offers() {
    local offered
    offered=$(HOME=$scratch fish --no-config -c "source $scratch/kasane.fish; complete -C '$1'" | cut -f 1 |
      sort | tr '\n' ' ')
    [ "$offered" = "$2 " ] || fail "fish: $1: $offered, not $2"
  }
  fish_offers "kasane ru" "run"
  fish_offers "kasane run --map " "compact scatter"
  fish_offers "kasane run --check races,h" "races,heap"
  fish_offers "kasane bench coll" "collectives"
  fish_offers "kasane run --workers" "--workers"
fi
echo "pages: passed"
