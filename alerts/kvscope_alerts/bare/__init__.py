"""Rules for servers without kvscope: plain vLLM and SGLang, by their own metric names.

`python -m kvscope_alerts.bare` generates `alerts/vllm.rules.yml` and `alerts/sglang.rules.yml`.
There are no alerts on figures that such a server does not report; docs/attach/bare-servers.md lists
them."""
