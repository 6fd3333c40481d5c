"""Rules for servers without kvscope: vLLM and SGLang as they are, by their own names.

`python -m alerts.bare` generates `alerts/vllm.rules.yml` and `alerts/sglang.rules.yml`. Nothing is
alerted on that such a server does not report; docs/guides/bare-servers.md says what that is.
"""
