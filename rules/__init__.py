"""The rules, one module each, named after the rule; loaded through `amplint.rule.all_rules` and never by name."""
