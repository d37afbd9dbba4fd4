//! The rules of a document: trims (§9 of the contract) and the two ends of a sweep (§10).

use super::command::{DocumentCommand, DocumentReply};
use super::event::{self, DocumentEvent, DocumentSweepBegun, EntityTrimSet};
use super::rows;
use super::state::{Document, EntityTrimRecord};
use crate::base::{DocumentId, Error, Result, StreamKey, StreamKind};
use crate::domain::{Aggregate, ContentRef, Context, Decision, Row, RowKey};

impl Aggregate for Document {
    const KIND: StreamKind = event::KIND;
    const SNAPSHOT_SCHEMA: u16 = 1;
    type Command = DocumentCommand;
    type Event = DocumentEvent;
    type Reply = DocumentReply;

    fn command_name(command: &DocumentCommand) -> &'static str {
        match command {
            DocumentCommand::SetEntityTrim { .. } => "set_entity_trim",
            DocumentCommand::EntityTrim => "entity_trim",
            DocumentCommand::ClearEntityTrim => "clear_entity_trim",
            DocumentCommand::BeginDocumentSweep => "begin_document_sweep",
            DocumentCommand::AbandonDocumentSweep => "abandon_document_sweep",
            DocumentCommand::SweepDocumentRows => "sweep_document_rows",
        }
    }

    fn is_read(command: &DocumentCommand) -> bool {
        matches!(command, DocumentCommand::EntityTrim)
    }

    fn decide(
        &self,
        key: &StreamKey,
        command: &DocumentCommand,
        context: &Context,
    ) -> Result<Decision<Self>> {
        let document = document_id(key)?;
        let events = match command {
            DocumentCommand::EntityTrim => {
                let trim = self.trim.as_ref().map(|trim| EntityTrimRecord {
                    document_id: document.clone(),
                    owner: trim.owner.clone(),
                    connector: trim.connector.clone(),
                    trimmed_fields: trim.trimmed_fields.clone(),
                    updated_at: trim.updated_at,
                });
                return Ok(Decision::unchanged(DocumentReply::Trim(trim)));
            }
            DocumentCommand::SetEntityTrim { owner, connector, trimmed_fields } => {
                let (owner, connector) = match &self.trim {
                    Some(standing) => (&standing.owner, &standing.connector),
                    None => (owner, connector),
                };
                vec![DocumentEvent::EntityTrimSet(EntityTrimSet {
                    owner: owner.clone(),
                    connector: connector.clone(),
                    trimmed_fields: trimmed_fields.clone(),
                    updated_at: context.now,
                })]
            }
            DocumentCommand::ClearEntityTrim => {
                self.trim.iter().map(|_| DocumentEvent::EntityTrimCleared).collect()
            }
            DocumentCommand::BeginDocumentSweep => match self.sweep_begun_at {
                Some(_) => Vec::new(),
                None => {
                    vec![DocumentEvent::DocumentSweepBegun(DocumentSweepBegun { at: context.now })]
                }
            },
            DocumentCommand::AbandonDocumentSweep => {
                self.sweep_begun_at.iter().map(|_| DocumentEvent::DocumentSweepAbandoned).collect()
            }
            DocumentCommand::SweepDocumentRows => {
                let mut decision = Decision::unchanged(DocumentReply::Done);
                if self.has_history {
                    decision.events.push(DocumentEvent::Swept);
                    decision.erase = true;
                }
                return Ok(decision);
            }
        };
        Ok(Decision::events(DocumentReply::Done, events))
    }

    fn apply(&mut self, event: &DocumentEvent) {
        self.apply_event(event);
    }

    fn touched(key: &StreamKey, event: &DocumentEvent, rows: &mut Vec<RowKey>) {
        if let StreamKey::Document(document) = key {
            rows::touched(document, event, rows);
        }
    }

    fn row(&self, key: &StreamKey, row: &RowKey) -> Option<Row> {
        match key {
            StreamKey::Document(document) => rows::row(self, document, row.table),
            _ => None,
        }
    }

    fn rows(&self, key: &StreamKey) -> Vec<RowKey> {
        match key {
            StreamKey::Document(document) => rows::rows(self, document),
            _ => Vec::new(),
        }
    }

    fn content(&self, _key: &StreamKey, _row: &RowKey) -> Vec<(usize, ContentRef)> {
        Vec::new()
    }
}

fn document_id(key: &StreamKey) -> Result<&DocumentId> {
    match key {
        StreamKey::Document(document) => Ok(document),
        _ => Err(Error::invalid("key", "expected a document")),
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
