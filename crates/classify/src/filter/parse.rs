//! From text to clauses: a recursive descent that keeps every part in disjunctive form.

mod number;
mod primitive;

use super::lexer::Tokens;
use super::term::Term;
use super::{ALTERNATIVES_MAX, Filter, FilterError};

pub(super) use primitive::ether_proto;

/// Parentheses nest no deeper than this.
const DEPTH_MAX: usize = 16;

pub(super) fn filter(text: &str) -> Result<Filter, FilterError> {
    let mut tokens = Tokens::of(text)?;
    let terms = alternatives(&mut tokens, 0)?;
    if let Some(word) = tokens.peek() {
        let problem = format!("`{word}` has no partner");
        return Err(FilterError::new(tokens.column(), problem, "remove it, or open a parenthesis"));
    }
    let clauses: Vec<_> = terms.iter().filter_map(Term::finish).collect();
    Filter::of(clauses).ok_or_else(|| {
        let remedy = "say `vlan optional`, or leave the tag's bits out of `digest`";
        FilterError::new(1, "the filter is about frames without a tag that have one", remedy)
    })
}

fn alternatives(tokens: &mut Tokens<'_>, depth: usize) -> Result<Vec<Term>, FilterError> {
    let mut terms = conjunction(tokens, depth)?;
    while tokens.peek() == Some("or") {
        let column = tokens.column();
        tokens.accept("or");
        terms.extend(conjunction(tokens, depth)?);
        limit(&terms, column)?;
    }
    Ok(terms)
}

fn conjunction(tokens: &mut Tokens<'_>, depth: usize) -> Result<Vec<Term>, FilterError> {
    let mut terms = primary(tokens, depth)?;
    while !matches!(tokens.peek(), None | Some("or" | ")")) {
        tokens.accept("and");
        let column = tokens.column();
        let others = primary(tokens, depth)?;
        terms = product(&terms, &others);
        if terms.is_empty() {
            let problem = "this can never be true together with what stands before it";
            return Err(FilterError::new(column, problem, "remove one of them, or write `or`"));
        }
        limit(&terms, column)?;
    }
    Ok(terms)
}

fn product(terms: &[Term], others: &[Term]) -> Vec<Term> {
    terms.iter().flat_map(|term| others.iter().filter_map(|other| term.and(other))).collect()
}

fn limit(terms: &[Term], column: usize) -> Result<(), FilterError> {
    if terms.len() <= ALTERNATIVES_MAX {
        return Ok(());
    }
    let problem = format!("with this the filter has {} alternatives", terms.len());
    let remedy = format!("at most {ALTERNATIVES_MAX} are allowed: say src or dst, or use prefixes");
    Err(FilterError::new(column, problem, remedy))
}

fn primary(tokens: &mut Tokens<'_>, depth: usize) -> Result<Vec<Term>, FilterError> {
    let column = tokens.column();
    if !tokens.accept("(") {
        return primitive::primitive(tokens);
    }
    if depth == DEPTH_MAX {
        let remedy = format!("{DEPTH_MAX} may be open at a time");
        return Err(FilterError::new(column, "one parenthesis too many", remedy));
    }
    let terms = alternatives(tokens, depth + 1)?;
    tokens.expect(")")?;
    Ok(terms)
}
